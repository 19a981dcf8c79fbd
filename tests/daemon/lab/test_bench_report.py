"""From runs to figures: sums, medians over rounds, ratios of what was measured in the same round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.lab.bench_document import BenchResult
from pilotfish.daemon.lab.bench_measuring import TimedAnswer
from pilotfish.daemon.lab.bench_report import Spread, baseline, figures, groups, share_of_ceiling
from pilotfish.daemon.lab.bench_systems import STOCK, System, pilotfish_systems
from pilotfish.daemon.lab.benchmark import Run

SYSTEMS = (System(STOCK, ""), *pilotfish_systems("ik"))
PILOTFISH, SPECULATIVE, CEILING = (system.name for system in SYSTEMS[1:])


def run(system: str, seconds: float, round: int = 0, workload: str = "a", kind: str = "copy", **more) -> Run:
    """101 tokens: the first after one second, the rest until `seconds`."""
    given = {key: more.pop(key) for key in ("drafted", "accepted", "tokens", "first_token") if key in more}
    answer = replace(TimedAnswer((), "", 101, 1.0, seconds), **given)
    return Run(system, "greedy", "first", workload, kind, round, answer, **more)


def figure(runs, system, group="all"):
    (found,) = [f for f in figures(runs, SYSTEMS, STOCK) if (f.system, f.group) == (system, group)]
    return found


def test_a_rate_is_committed_tokens_over_wall_time_and_decoding_begins_after_the_first():
    found = figure([run(STOCK, 11.0)], STOCK)
    assert found.decode == Spread(10.0, 10.0, 10.0)
    assert found.total == Spread(101 / 11, 101 / 11, 101 / 11)
    assert found.seconds == Spread(11, 11, 11)


def test_ratios_divide_what_was_measured_in_one_round():
    """The machine is twice as slow in the second round; both systems suffer, the ratio does not."""
    runs = [run(STOCK, 21.0), run(PILOTFISH, 11.0), run(STOCK, 41.0, 1), run(PILOTFISH, 21.0, 1)]
    assert figure(runs, PILOTFISH).decode_ratio == Spread(2.0, 2.0, 2.0)
    assert figure(runs, PILOTFISH).decode == Spread(7.5, 5.0, 10.0)
    assert figure(runs, STOCK).decode_ratio == Spread(1.0, 1.0, 1.0)


def test_the_spread_is_over_rounds():
    runs = [run(STOCK, 11.0, i) for i in range(3)] + [run(PILOTFISH, s, i) for i, s in enumerate((6.0, 3.5, 11.0))]
    assert figure(runs, PILOTFISH).decode_ratio == Spread(2.0, 1.0, 4.0)


def test_a_group_is_the_sum_of_its_workloads_not_the_mean_of_their_rates():
    runs = [
        run(STOCK, 11.0, workload="a"),
        run(STOCK, 101.0, workload="b"),
        run(PILOTFISH, 2.0, workload="a"),
        run(PILOTFISH, 101.0, workload="b"),
    ]
    assert figure(runs, PILOTFISH, "copy").decode_ratio.median == pytest.approx(110 / 101)
    assert figure(runs, PILOTFISH, "a").decode_ratio.median == pytest.approx(10)


def test_groups_are_workloads_then_kinds_then_all():
    runs = [run(STOCK, 2.0), run(STOCK, 2.0, workload="b", kind="open"), run(STOCK, 2.0, workload="c")]
    assert groups(runs) == ["a", "b", "c", "copy", "open", "all"]
    assert {f.group for f in figures(runs, SYSTEMS, STOCK)} == {"a", "b", "c", "copy", "open", "all"}


def test_a_round_in_which_a_system_missed_a_workload_does_not_count_for_the_sum():
    runs = [run(system, 11.0, i, w) for system in (STOCK, PILOTFISH) for i in (0, 1) for w in "ab"]
    runs.remove(run(PILOTFISH, 11.0, 1, "b"))
    runs = [
        replace(r, answer=replace(r.answer, seconds=1.5)) if (r.system, r.round) == (PILOTFISH, 1) else r for r in runs
    ]
    assert figure(runs, PILOTFISH).decode_ratio == Spread(1.0, 1.0, 1.0)
    assert figure(runs, PILOTFISH, "a").decode_ratio.high > 10


def test_the_own_plain_time_is_the_measure_of_what_speculation_costs_or_saves():
    runs = [run(STOCK, 5.0), run(PILOTFISH, 12.0), run(SPECULATIVE, 8.0)]
    assert figure(runs, SPECULATIVE).plain_ratio == Spread(1.5, 1.5, 1.5)
    assert figure(runs, PILOTFISH).plain_ratio is None


def test_latency_acceptance_and_equal_ids():
    runs = [
        run(STOCK, 5.0),
        run(PILOTFISH, 5.0),
        run(SPECULATIVE, 5.0, first_token=1.5, drafted=30, accepted=20, equal=True),
        run(STOCK, 5.0, 1),
        run(PILOTFISH, 5.0, 1),
        run(SPECULATIVE, 5.0, 1, first_token=1.5, drafted=10, accepted=10, equal=False),
    ]
    found = figure(runs, SPECULATIVE)
    assert (found.first_ratio.median, found.acceptance) == (1.5, 0.75)
    assert (found.equal, found.compared) == (1, 2)
    assert figure(runs, STOCK).acceptance is None


def test_the_share_of_the_ceiling_compares_gains_not_rates():
    """Plain decodes at 10 tokens per second, pilotfish at 20, the oracle at 50: 10 of the 40 to be gained."""
    runs = [run(PILOTFISH, 11.0), run(SPECULATIVE, 6.0), run(CEILING, 3.0)]
    assert share_of_ceiling(figures(runs, SYSTEMS, PILOTFISH), "greedy", "first", "copy", "ik") == pytest.approx(0.25)
    without = [run(PILOTFISH, 12.0), run(SPECULATIVE, 6.0)]
    assert share_of_ceiling(figures(without, SYSTEMS, PILOTFISH), "greedy", "first", "copy", "ik") is None


def test_without_a_stock_server_the_first_engines_plain_decoding_is_the_baseline():
    assert baseline(SYSTEMS) == STOCK
    assert baseline(SYSTEMS[1:]) == PILOTFISH
    assert baseline((*pilotfish_systems("llama"), *SYSTEMS[1:])) == "pilotfish (llama) plain"


def test_an_answer_of_one_token_has_no_decoding_rate():
    found = figure([run(STOCK, 1.0, tokens=1)], STOCK)
    assert found.decode is None
    assert found.decode_ratio is None


@pytest.mark.parametrize(("system", "exact"), [(SPECULATIVE, False), ("ngram-mod", True)])
def test_only_pilotfishs_own_differences_break_its_promise(system, exact):
    systems = (*SYSTEMS, System("ngram-mod", "", STOCK))
    result = BenchResult(systems, STOCK, [run(system, 2.0, equal=False)], {}, {})
    assert result.exact is exact
    assert result.to_json()["exact"] is exact
