"""What a model's requests do, counted round by round, and added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.daemon.core.histogram import Histogram, Observed
from pilotfish.daemon.core.measures import Measures, Meter
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import NoisyDrafter
from tests.daemon.core.asking import PROMPT, request, truth
from tests.fakes.session import Always, answer

BOUNDS = (1.0, 2.0, 5.0)
VALUES = st.lists(st.floats(0, 10, allow_nan=False), max_size=20)


def observed(values: list[float]) -> Histogram:
    histogram = Observed(BOUNDS)
    for value in values:
        histogram.observe(value)
    return histogram.taken()


def test_a_value_on_a_bound_lies_below_it_and_one_above_all_is_counted():
    assert observed([0.5, 1.0, 1.5, 9.0]).cumulative() == [("1.0", 2.0), ("2.0", 3.0), ("5.0", 3.0), ("+Inf", 4.0)]


@given(VALUES, VALUES)
def test_histograms_of_two_processes_add_up_to_that_of_one(some, others):
    both = observed(some) + observed(others)
    assert both.counts == observed(some + others).counts
    assert (both - observed(some)).counts == observed(others).counts
    assert both.count == len(some) + len(others)


def test_every_token_and_every_round_is_counted_once():
    meter, engine = Meter(), FakeEngine()
    drafter = NoisyDrafter(truth(FakeEngine()), wrong=0.3, n_vocab=32)
    controller = Always(engine, 4)
    done = answer(engine, request(30), [drafter], controller=controller, meter=meter)
    meter.answer(done.outcome, 0.5)
    measures, timings = meter.taken(), done.outcome.timings
    assert measures.answered == timings.predicted_n == len(done.ids)
    assert measures.accepted == timings.draft_n_accepted > 0
    assert measures.accepted + measures.rejected == timings.draft_n > measures.accepted
    assert (measures.prompt, measures.cached, measures.answers) == (len(PROMPT), 0, 1)
    proposed = [drafted for drafted, _ in controller.rounds]
    assert measures.drafted_rounds.count == measures.accepted_length.count == sum(map(bool, proposed))
    assert measures.plain_rounds.count == proposed.count(0)
    assert measures.accepted_length.sum == measures.accepted
    assert measures.first_token.count == 1


def test_they_move_while_an_answer_is_written():
    meter = Meter()
    seen: list[int] = []
    answer(FakeEngine(), request(10), meter=meter, emit=lambda batch: seen.append(meter.taken().answered))
    assert seen == sorted(set(seen))
    assert len(seen) == 10


def test_what_was_saved_and_what_was_lost_both_only_grow():
    meter, outcome = Meter(), answer(FakeEngine(), request(3)).outcome
    for gain in (2.0, -0.5, 1.0, 0.0):
        meter.answer(outcome, gain)
    assert (meter.taken().saved, meter.taken().lost) == (3.0, 0.5)


def test_they_travel_as_json_and_other_bounds_are_refused():
    meter = Meter()
    meter.answer(answer(FakeEngine(), request(5), meter=meter).outcome, 1.5)
    told = meter.taken().to_json()
    assert Measures.from_json(told) == meter.taken()
    told["first_token"]["counts"].append(0)
    with pytest.raises(ValueError, match="12 counts, not 13"):
        Measures.from_json(told)
