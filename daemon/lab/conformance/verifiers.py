"""Puts a plugin's verifiers through their checks, each on an engine that it loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pilotfish.daemon.lab.conformance.harness import Nonconformance, supervised
from pilotfish.daemon.lab.conformance.loading_checks import LOADING_SECONDS
from pilotfish.daemon.lab.conformance.patience import CallWatch
from pilotfish.daemon.lab.conformance.report import NOT_RUN, CheckResult, Verdict
from pilotfish.daemon.lab.conformance.running import run_check
from pilotfish.daemon.lab.conformance.slot_checks import SLOT_CHECKS
from pilotfish.daemon.lab.conformance.verifier_checks import PROMPT, VERIFIER_CHECKS, EngineHarness, demand, same
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import EngineOptions, TokenizerPin
from pilotfish.manifests.pins import pin_file

ENGINE_CHECKS = (*VERIFIER_CHECKS, *SLOT_CHECKS)
TEXT = "2 3"  # what ids and texts are alike in, for engines whose texts are ids
SLOTS = 3  # that an engine is asked for
LOADS = "loads"
LOADS_DEMAND = "Its factory takes its table and gives a verifier that loads the model."
BEGINNINGS = "begins texts as the model says"
BEGINNINGS_DEMAND = "Its tokenizer adds BOS and end tokens where the model's metadata asks for them, and nowhere else."
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
        begins = partial(begins_texts, engines[0], pin.tokenizer)
        results.append(run_check(BEGINNINGS, BEGINNINGS_DEMAND, begins, watch))
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


def begins_texts(engine: TargetEngine, said: TokenizerPin) -> None:
    """Raise Nonconformance unless its tokenizer adds what the model asks for."""
    bare = engine.tokenizer.encode(TEXT, add_special=False)
    begin = [said.bos] if said.add_bos and said.bos is not None else []
    end = [said.eos] if said.add_eos and said.eos is not None else []
    found = engine.tokenizer.encode(TEXT)
    demand(found[: len(begin)] == begin, f"{TEXT!r} begins with {found[:1]}, and the model asks for BOS, {begin}")
    same(found, [*begin, *bare, *end], f"{TEXT!r} in tokens")


def _not_run() -> list[CheckResult]:
    why = "it could not be loaded"
    results = [CheckResult(_title(check), _demand(check), NOT_RUN, why) for check in ENGINE_CHECKS]
    return [*results, CheckResult(BEGINNINGS, BEGINNINGS_DEMAND, NOT_RUN, why)]


def _title(check: Callable[[EngineHarness], None]) -> str:
    return check.__name__.replace("_", " ")


def _demand(check: Callable[[EngineHarness], None]) -> str:
    return (check.__doc__ or "").strip()
