"""`pilotfish certify`: measure in which forward shapes speculation cannot change a token of a model, here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pilotfish.daemon.cli.certificate_table import show
from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config.types import AUTO, CHOICES, STOCK_ENGINE, TENSOR_ENGINE, TENSORS, engines_of

if TYPE_CHECKING:
    from pilotfish.daemon.certify.certificate import Certificate
    from pilotfish.hooks.types import EngineOptions, TargetPin

_CACHE_TYPES = click.Choice(["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])

_PROBE = "Compare the lane's widths after the prefix of this reproduction, too (pilotfish diagnose); may be repeated."
_PARALLEL = "Requests at a time, as the launch sets them (OLLAMA_NUM_PARALLEL)."


@click.command("certify")
@click.argument("model")
@click.option("--budget", default=60.0, show_default=True, type=click.FloatRange(1), help="Seconds it may take.")
@click.option("--json", "as_json", is_flag=True, help="The certificate as one JSON object.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--context", "n_ctx", default=4096, show_default=True, type=click.IntRange(64), help="Tokens of context.")
@click.option("--threads", type=click.IntRange(1), help="As the launch sets it; the engine's choice by default.")
@click.option("--parallel", "slots", default=1, show_default=True, type=click.IntRange(1), help=_PARALLEL)
@click.option("--gpu-layers", type=click.IntRange(0), help="As the launch sets it.")
@click.option("--cache-type-k", type=_CACHE_TYPES, help="As the launch sets it (OLLAMA_KV_CACHE_TYPE).")
@click.option("--cache-type-v", type=_CACHE_TYPES, help="As the launch sets it (OLLAMA_KV_CACHE_TYPE).")
@click.option("--flash/--no-flash", "flash_attention", default=None, help="As the launch sets it.")
@click.option("--engine", type=click.Choice(CHOICES), help="What may compute; the config's choice by default.")
@click.option("--probe", "probes", multiple=True, type=click.Path(path_type=Path), help=_PROBE)
@click.option("--parity", type=click.Choice(["lane", "stock"]), help="The promise wanted; the config's by default.")
def command(
    model: str,
    budget: float,
    as_json: bool,
    root: Path | None,
    engine: str | None,
    parity: str | None,
    probes: tuple[Path, ...],
    **launch: Any,
) -> None:
    """Find the engine and the lane of MODEL, a name in the store or a .gguf file, and keep them for the next load.

    A certificate holds for the launch settings it was made with: give those that Ollama will use.
    """
    from pilotfish.daemon.certify.certification import certify
    from pilotfish.daemon.certify.reproductions import read_reproduction
    from pilotfish.daemon.config import files
    from pilotfish.daemon.config.paths import state_dir
    from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
    from pilotfish.daemon.registry.registry import Registry
    from pilotfish.daemon.registry.spread import with_far_ends
    from pilotfish.hooks.types import EngineOptions, Parity

    settings = files.load()
    options = EngineOptions(state_dir=state_dir(), **launch)
    pin = _pin(model, root, options)
    configured = settings.for_model(pin.name)
    of_config = configured.speculation.parity
    apart = configured.engine.prompts == "fast"
    wanted = Parity(parity) if parity else Parity.STOCK if of_config is Parity.STOCK else Parity.LANE
    choice = engine or configured.engine.choice
    if configured.engine.rpc and pin.format != TENSORS:
        if engine not in (None, AUTO, STOCK_ENGINE):
            raise click.UsageError(f"[engine] rpc names far ends, on which only the engine {STOCK_ENGINE} computes")
        choice, options = STOCK_ENGINE, with_far_ends(options, configured.engine)
    if wanted is Parity.STOCK and engine not in (None, AUTO, STOCK_ENGINE):
        raise click.UsageError(f'parity "stock" is for the engine {STOCK_ENGINE} alone: {engine} has other kernels')
    registry = Registry.load(settings)
    verifiers = fit_verifiers(registry, _engines(pin, STOCK_ENGINE if wanted is Parity.STOCK else choice), options)
    for remark in registry.remarks:
        err.print(f"not among the engines: {remark}", style="yellow", markup=False, soft_wrap=True)
    regressions = [read_reproduction(path) for path in probes]
    with _progress(budget) as report:
        certificate, path = certify(
            pin,
            verifiers,
            options,
            parity=wanted,
            budget=budget,
            prompts_apart=apart,
            regressions=regressions,
            progress=report,
        )
    if as_json:
        click.echo(json.dumps(certificate.to_json(), indent=2))
    else:
        show(certificate)
        out.print(_kept(certificate, path), style="dim", markup=False)


def _engines(pin: TargetPin, choice: str) -> tuple[str, ...]:
    return (TENSOR_ENGINE,) if pin.format == TENSORS else engines_of(choice)


def _kept(certificate: Certificate, path: Path | None) -> str:
    if path:
        return f"kept as {path}"
    if not certificate.conclusive:
        return "not kept, because time ran out before a lane was found: give it more with --budget"
    return "it could not be kept; see the log"


def _pin(model: str, root: Path | None, options: EngineOptions) -> TargetPin:
    from pilotfish.daemon.lab.demonstration import MODEL, demo_store
    from pilotfish.hooks.errors import ModelNotFound
    from pilotfish.manifests.pins import pin_file, pin_model
    from pilotfish.manifests.store import Store

    if model.endswith(".gguf"):
        return pin_file(Path(model), options.state_dir)
    store = Store.find(root)
    try:
        return pin_model(store, model, options.state_dir)
    except ModelNotFound:
        if model != MODEL or root is not None:
            raise
        return pin_model(demo_store(), model, options.state_dir)


class _progress:
    """A bar over the budget that tells what is being done; usable as the certifier's progress."""

    def __init__(self, budget: float) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=err, transient=True)
        self._task = self._bar.add_task("starting", total=budget)
        self._started = time.monotonic()

    def __enter__(self) -> Callable[[str], None]:
        self._bar.start()
        return self._report

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def _report(self, what: str) -> None:
        self._bar.update(self._task, description=what, completed=time.monotonic() - self._started)
