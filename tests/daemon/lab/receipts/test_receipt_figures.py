"""Rates, latencies and acceptance from trials whose numbers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.lab.receipts import receipt_figures
from pilotfish.daemon.lab.receipts.receipt_types import Arrival, TrialKind, TrialTimes, TrialVerdict
from tests.daemon.lab.receipts.receipts import TIMES, a_receipt, a_round, a_trial


def timed(name, tokens, total, first=0.1, **more):
    times = TrialTimes(first, total, (Arrival(first, 1), Arrival(total, tokens - 1)))
    return replace(a_trial(name, **more), tokens=tokens, times=times)


@pytest.mark.parametrize(
    ("samples", "seconds"), [([3.0], 3.0), (list(range(1, 21)), 19), (list(range(1, 7)), 6), ([2.0, 1.0], 2.0)]
)
def test_p95_is_by_nearest_rank_and_has_its_sample_size(samples, seconds):
    found = receipt_figures.p95(samples)
    assert (found.seconds, found.n) == (seconds, len(samples))
    assert found.few == (len(samples) < 20)


def test_there_is_no_p95_of_nothing():
    assert receipt_figures.p95([]) is None


def test_rates_count_committed_ids_from_the_request_to_the_end():
    group = receipt_figures.figures_of([timed("a", 10, 2.0), timed("b", 10, 1.0), timed("c", 10, 5.0)])
    assert group.rate == 5.0
    assert group.decode_rate == pytest.approx(9 / 1.9)


def test_a_diverged_answer_enters_no_rate_and_no_latency():
    bad = timed("b", 10, 0.001, first=9.0, verdict=TrialVerdict.DIFFERENT)
    group = receipt_figures.figures_of([timed("a", 10, 2.0), bad])
    assert (group.rate, group.first_token.seconds, group.different, group.trials) == (5.0, 0.1, 1, 2)


def test_corrections_and_bonus_ids_are_no_accepted_ones():
    rounds = (a_round(12, (7, 8), 2, (7, 8, 9)), a_round(15, (1, 2), 0, (3,)), a_round(16, (), 0, (4,), ""))
    group = receipt_figures.figures_of([a_trial("a", rounds=rounds)])
    assert (group.accepted, group.proposed, group.acceptance) == (2, 4, 0.5)
    assert (group.fallbacks, group.rounds) == (1, 3)


def test_acceptance_is_told_apart_by_place():
    rounds = (a_round(12, (7, 8), 2, (7, 8, 9)), a_round(15, (1, 2), 1, (1, 3)), a_round(17, (5,), 0, (4,)))
    assert receipt_figures.acceptance_by_position([a_trial("a", rounds=rounds)]) == [(2, 3), (1, 2)]


def test_parts_of_a_round_that_nothing_measured_stay_unknown():
    found = receipt_figures.mean_round([a_round()])
    assert found.times.transport is None
    waited = replace(a_round(), times=replace(TIMES, transport=0.5))
    assert receipt_figures.mean_round([waited, a_round()]).times.transport == 0.25


def test_plain_decoding_comes_first_and_what_is_cold_nowhere():
    trials = (a_trial("a"), a_trial("cold", TrialKind.COLD), a_trial("p", TrialKind.PLAIN))
    assert [group.title for group in receipt_figures.groups_of(a_receipt(trials=trials))] == ["plain", "suffix, 2"]


def test_several_ids_of_one_arrival_are_a_burst():
    trial = replace(a_trial("a"), times=TrialTimes(0.1, 0.2, (Arrival(0.1, 1), Arrival(0.2, 4))))
    assert receipt_figures.bursts(trial) == [4]
