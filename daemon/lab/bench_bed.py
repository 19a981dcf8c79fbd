"""Before the first measurement: the model's certificate, a state folder of the run's own, and the prompts as ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pilotfish.daemon.certify.certificate import CertificateStore
from pilotfish.daemon.certify.certification import certify
from pilotfish.daemon.certify.lookup import find_lane
from pilotfish.daemon.config.paths import cache_dir, state_dir
from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab.bench_starting import started
from pilotfish.daemon.lab.bench_systems import Bed, System, command, engines_among
from pilotfish.daemon.lab.bench_tasks import PASSES, Task, passes
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.pins import pin_file

WARM_UP = Workload("warm-up", "open", "Say hello.", "")
WARM_UP_TOKENS = 16


def run_state() -> Path:
    """Where the measured runners remember things: not where the user's do, whose last good config lies there."""
    path = cache_dir() / "bench-state"
    path.mkdir(parents=True, exist_ok=True)
    return path


def bring_certificates(
    bed: Bed, engines: Sequence[str], *, make: bool, report: Callable[[str], None]
) -> dict[str, str]:
    """Put the model's certificate for each engine where the measured runners find it.

    What each says, or why there is none. With `make` a missing one is measured first and kept for the user, too. A
    runner without one would measure it in an idle minute, perhaps while another system is being timed.
    """
    return {engine: _certificate(bed, engine, make, report) for engine in engines}


def _certificate(bed: Bed, engine: str, make: bool, report: Callable[[str], None]) -> str:
    options = EngineOptions(n_ctx=bed.context, threads=bed.threads, state_dir=state_dir())
    verifiers = fit_verifiers(Registry.load(bed.config), (engine,), options)
    pin, parity = pin_file(bed.model, state_dir()), bed.config.speculation.parity
    found = find_lane(pin, verifiers, options, parity)
    certificate = found.certificate
    if certificate is None and make and found.identity is not None:
        try:
            certificate, _ = certify(
                pin, verifiers, options, parity=parity, progress=lambda what: report(f"certifying for {engine}: {what}")
            )
        except PilotfishError as error:
            return f"not certified: {error}"
    if certificate is None:
        return "not certified; the lane is the one found at load"
    CertificateStore(bed.state).put(certificate)
    return certificate.summary()


@dataclass(frozen=True, slots=True)
class Prompts:
    """The tasks of a run, in the order in which they are asked, and the one that warms a server up.

    `failed` says which engines do not load the model, and why.
    """

    tasks: tuple[Task, ...]
    warm_up: Task
    failed: Mapping[str, str]


async def render(
    systems: Sequence[System], bed: Bed, workloads: Sequence[Workload], modes: Sequence[Mode], n: int
) -> Prompts:
    """Every prompt through the model's own template, once, and as ids, so that all systems read the same.

    The first engine that loads the model does it (stock's template engine is another one). The others are loaded once,
    too: what a first load checks and remembers is no part of what loading costs. Raises EngineError when none loads it.
    """
    rendered: list[Task] = []
    failed: dict[str, str] = {}
    async with new_session() as session:
        for engine in engines_among(systems):
            system = next(system for system in systems if system.engine == engine)
            try:
                async with started(partial(command, system, bed), system.name, session) as server:
                    rendered = rendered or await _rendered(server.client, workloads, modes[0], n)
            except EngineError as error:
                failed[engine] = str(error)
    if not rendered:
        raise EngineError("; ".join(failed.values()))
    warm_up, *tasks = rendered
    return Prompts(tuple(replace(task, mode=mode) for mode in modes for task in tasks), warm_up, failed)


async def _rendered(client: RunnerClient, workloads: Sequence[Workload], mode: Mode, n: int) -> list[Task]:
    """The task that warms a server up, then the others, in one mode."""
    warm_up = replace(await _task(client, WARM_UP, PASSES[0], mode), n_predict=WARM_UP_TOKENS)
    return [
        warm_up,
        *[
            replace(await _task(client, workload, again, mode), n_predict=n)
            for again, group in passes(workloads).items()
            for workload in group
        ],
    ]


async def _task(client: RunnerClient, workload: Workload, again: str, mode: Mode) -> Task:
    messages = [{"role": "system", "content": workload.system}, {"role": "user", "content": workload.prompt}]
    prompt = await client.apply_template(messages if workload.system else messages[1:])
    ids = tuple(await client.tokenize(prompt))
    return Task(workload, again, mode, prompt, ids, 0)
