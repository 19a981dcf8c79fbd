"""Puts a plugin's verifiers through their checks, each on an engine that it loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pilotfish.daemon.lab.conformance.harness import Nonconformance, supervised
from pilotfish.daemon.lab.conformance.loading_checks import LOADING_SECONDS
from pilotfish.daemon.lab.conformance.patience import CallWatch
from pilotfish.daemon.lab.conformance.report import NOT_RUN, CheckResult, Verdict
from pilotfish.daemon.lab.conformance.running import run_check
from pilotfish.daemon.lab.conformance.slot_checks import SLOT_CHECKS
from pilotfish.daemon.lab.conformance.verifier_checks import PROMPT, VERIFIER_CHECKS, EngineHarness
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.pins import pin_file

ENGINE_CHECKS = (*VERIFIER_CHECKS, *SLOT_CHECKS)
SLOTS = 3  # that an engine is asked for
LOADS = "loads"
LOADS_DEMAND = "Its factory takes its table and gives a verifier that loads the model."
NO_MODEL = "a verifier is checked with a model that it loads: name a small one, --model FILE.gguf"
ONE_WIDTH = "it loaded the model in a lane of one width, in which proposals are never verified"


def examine_verifier(
    registry: Registry, name: str, model: Path | None, options: EngineOptions, tell: Callable[[str], None]
) -> Verdict:
    """The verdict on `name`, which is in `registry`. Without a model there is only a note. Raises BrokenModel."""
    if model is None:
        return Verdict("verifier", name, note=NO_MODEL)
    pin = pin_file(model, None)
    engines: list[TargetEngine] = []

    def load() -> None:
        tell(f"{name}: {LOADS}")
        with supervised(watch, "load", f"loading {model}", LOADING_SECONDS):
            verifier = registry.verifier(name)
            if verifier is None:
                raise Nonconformance(str(registry.problems[-1]))
            engines.append(verifier.load(pin, None, replace(options, slots=SLOTS)))

    with CallWatch() as watch:
        loaded = run_check(LOADS, LOADS_DEMAND, load, watch)
        if not engines:
            return Verdict("verifier", name, (loaded, *_not_run()), watch.slowest)
        results = [loaded, *(_on(check, engines[0], watch, tell) for check in ENGINE_CHECKS)]
        note = ONE_WIDTH if engines[0].lane.max_width == 1 else ""
        results.append(run_check("closes", "It frees the model.", engines[0].close, watch))
        return Verdict("verifier", name, tuple(results), watch.slowest, note)


def _on(
    check: Callable[[EngineHarness], None], engine: TargetEngine, watch: CallWatch, tell: Callable[[str], None]
) -> CheckResult:
    def job() -> None:
        with supervised(watch, "check", _title(check), LOADING_SECONDS):
            check(EngineHarness(engine, [token % engine.n_vocab for token in PROMPT]))

    tell(_title(check))
    return run_check(_title(check), _demand(check), job, watch)


def _not_run() -> list[CheckResult]:
    return [CheckResult(_title(check), _demand(check), NOT_RUN, "it could not be loaded") for check in ENGINE_CHECKS]


def _title(check: Callable[[EngineHarness], None]) -> str:
    return check.__name__.replace("_", " ")


def _demand(check: Callable[[EngineHarness], None]) -> str:
    return (check.__doc__ or "").strip()
