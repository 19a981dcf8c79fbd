"""Puts a plugin's bridges through their checks, on made-up vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pilotfish.daemon.lab.conformance.bridge_checks import BRIDGE_CHECKS, BridgeHarness, Pair, made_up_pairs
from pilotfish.daemon.lab.conformance.harness import Nonconformance, supervised
from pilotfish.daemon.lab.conformance.patience import CallWatch, Hangs
from pilotfish.daemon.lab.conformance.report import FAILED, CheckResult, Verdict
from pilotfish.daemon.lab.conformance.running import run_check
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import Bridge

OPENS = "opens or declines"
OPENS_DEMAND = "Its factory gives a bridge or None for any two vocabularies, and does not raise."
NOTHING_OPENED = (
    "it opened for none of the made-up vocabularies, so its translations were not checked; `pilotfish pair` shows what "
    "it does between real ones"
)


def examine_bridges(registry: Registry, names: Sequence[str], patience: float) -> list[Verdict]:
    """A verdict for each of `names`, all in `registry`, which asks them in their order; so each is checked on the
    pairs of which it is the first to open.
    """
    results: dict[str, list[CheckResult]] = {name: [] for name in names}
    before = len(registry.problems)
    hung = ""
    with CallWatch(patience) as watch:
        try:
            for label, pair in made_up_pairs():
                first = watch.run(partial(_asked, registry, pair, label, watch))
                if first is not None and first[0] in results:
                    results[first[0]].extend(_translations(registry, pair, label, watch))
        except (Hangs, Nonconformance) as error:
            hung = str(error)
    troubles = [problem.message for problem in registry.problems[before:]]
    return [_verdict(name, found, hung, troubles) for name, found in results.items()]


def _asked(registry: Registry, pair: Pair, label: str, watch: CallWatch) -> tuple[str, Bridge] | None:
    with supervised(watch, "open", f"opening a bridge for {label}"):
        return registry.bridge(*pair)


def _translations(registry: Registry, pair: Pair, label: str, watch: CallWatch) -> Iterator[CheckResult]:
    def fresh() -> Bridge:
        found = registry.bridge(*pair)
        if found is None:
            raise Nonconformance(f"it opened for {label} and then declined; decide by the vocabularies alone")
        return found[1]

    def job(run: Callable[[BridgeHarness], None]) -> None:
        with supervised(watch, "translate", f"translating for {label}"):
            run(BridgeHarness(fresh, pair))

    for run in BRIDGE_CHECKS:
        name = f"{run.__name__.replace('_', ' ')}, {label}"
        yield run_check(name, (run.__doc__ or "").strip(), partial(job, run), watch)


def _verdict(name: str, results: Sequence[CheckResult], hung: str, troubles: Sequence[str]) -> Verdict:
    mine = [trouble for trouble in troubles if trouble.startswith(f"bridge {name!r}")]
    seen = hung or "; ".join(mine)
    opens = CheckResult(OPENS, OPENS_DEMAND, FAILED, seen) if seen else CheckResult(OPENS, OPENS_DEMAND)
    return Verdict("bridge", name, (opens, *results), note="" if results or seen else NOTHING_OPENED)
