"""Before the first measurement: the model's certificate, a state folder of the run's own, and the prompts as ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.certify.certificate import CertificateStore
from pilotfish.daemon.certify.certification import certify
from pilotfish.daemon.certify.lookup import find_lane
from pilotfish.daemon.config.paths import cache_dir, state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab.bench_starting import started
from pilotfish.daemon.lab.bench_systems import PILOTFISH, Bed, System, command
from pilotfish.daemon.lab.bench_tasks import PASSES, Task, passes
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.pins import pin_file

WARM_UP = Workload("warm-up", "open", "Say hello.", "")
WARM_UP_TOKENS = 16


def run_state() -> Path:
    """Where the measured runners remember things: not where the user's do, whose last good config lies there."""
    path = cache_dir() / "bench-state"
    path.mkdir(parents=True, exist_ok=True)
    return path


def bring_certificate(
    model: Path, config: Config, threads: int, context: int, *, make: bool, report: Callable[[str], None]
) -> str:
    """Put the model's certificate where the measured runners find it; what it says, or why there is none.

    With `make` a missing one is measured first and kept for the user, too. A runner without one would measure it in
    an idle minute, perhaps while another system is being timed.
    """
    options = EngineOptions(n_ctx=context, threads=threads, state_dir=state_dir())
    verifiers = fit_verifiers(Registry.load(config), config.engines, options)
    pin, parity = pin_file(model, state_dir()), config.speculation.parity
    found = find_lane(pin, verifiers, options, parity)
    certificate = found.certificate
    if certificate is None and make and found.identity is not None:
        try:
            certificate, _ = certify(pin, verifiers, options, parity=parity, progress=report)
        except PilotfishError as error:
            return f"not certified: {error}"
    if certificate is None:
        return "not certified; the lane is the one found at load"
    CertificateStore(run_state()).put(certificate)
    return certificate.summary()


@dataclass(frozen=True, slots=True)
class Prompts:
    """The tasks of a run, in the order in which they are asked, and the one that warms a server up."""

    tasks: tuple[Task, ...]
    warm_up: Task


async def render(system: System, bed: Bed, workloads: Sequence[Workload], modes: Sequence[Mode], n: int) -> Prompts:
    """Every prompt through the model's own template, once, and as ids, so that all systems read the same."""
    assert system.name == PILOTFISH  # stock's template engine is another one
    async with (
        new_session() as session,
        started(lambda port: command(system, bed, port), system.name, session) as client,
    ):
        warm_up = replace(await _task(client, WARM_UP, PASSES[0], modes[0]), n_predict=WARM_UP_TOKENS)
        rendered = [
            replace(await _task(client, workload, again, modes[0]), n_predict=n)
            for again, group in passes(workloads).items()
            for workload in group
        ]
    return Prompts(tuple(replace(task, mode=mode) for mode in modes for task in rendered), warm_up)


async def _task(client: RunnerClient, workload: Workload, again: str, mode: Mode) -> Task:
    messages = [{"role": "system", "content": workload.system}, {"role": "user", "content": workload.prompt}]
    prompt = await client.apply_template(messages if workload.system else messages[1:])
    ids = tuple(await client.tokenize(prompt))
    return Task(workload, again, mode, prompt, ids, 0)
