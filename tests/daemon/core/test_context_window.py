"""The context's end: what is forgotten, when, and that drafts change nothing about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.daemon.core.answering import Answering
from pilotfish.daemon.core.context_window import ContextShift
from pilotfish.daemon.core.coordinator import Coordinator
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generation import GenerationRequest, StopType
from pilotfish.daemon.core.turns import Turns
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import SamplingParams
from tests.fakes.session import Always, answer

GREEDY = SamplingParams(temperature=0)
PROMPT = tuple(range(2, 12))
NEVER = frozenset[int]()  # no token ends the answer


def request(n, shift, prompt=PROMPT, sampling=GREEDY):
    return GenerationRequest(prompt, sampling, n_predict=n, shift=shift)


def replay(ids, prompt=PROMPT):
    return ScriptedDrafter(lambda history, k: list(ids)[len(history) - len(prompt) :][:k])


@pytest.mark.parametrize(
    ("shift", "cells", "n_ctx", "expected"),
    [
        (ContextShift(keep=5), 511, 512, (5, 253)),  # half of what is behind those that stay
        (ContextShift(keep=5, discard=10), 511, 512, (5, 10)),
        (ContextShift(keep=5, discard=9999), 511, 512, (5, 505)),  # one always stays
        (ContextShift(keep=9999), 511, 512, (508, 1)),
        (ContextShift(keep=0), 3, 4, (0, 1)),
        (ContextShift(keep=1), 1, 2, (0, 0)),  # nothing to forget
    ],
)
def test_what_is_forgotten_is_what_stock_forgets(shift, cells, n_ctx, expected):
    assert shift.forgotten(cells, n_ctx) == expected


def test_without_a_shift_the_answer_ends_with_the_context():
    found = answer(FakeEngine(n_ctx=32, eog=NEVER), request(100, None))
    assert (len(found.ids), found.outcome.stop_type, found.outcome.truncated) == (22, StopType.LIMIT, True)
    assert found.outcome.discarded == 0


def test_a_target_that_cannot_forget_ends_as_without_a_shift():
    found = answer(FakeEngine(n_ctx=32, eog=NEVER, shifts=False), request(100, ContextShift(4)))
    assert (len(found.ids), found.outcome.stop_type, found.outcome.truncated) == (22, StopType.LIMIT, True)


def test_a_context_too_small_to_forget_anything_ends_the_answer():
    found = answer(FakeEngine(n_ctx=2, eog=NEVER), request(100, ContextShift(4), prompt=(5,)))
    assert (len(found.ids), found.outcome.truncated) == (1, True)


def test_a_full_context_forgets_before_the_forward_that_would_not_fit():
    engine = FakeEngine(n_ctx=32, eog=NEVER)
    found = answer(engine, request(60, ContextShift(keep=4)))
    assert (len(found.ids), found.outcome.stop_type, found.outcome.truncated) == (60, StopType.LIMIT, True)
    assert engine.shifts_done == [(31, 4, 13) * 3]
    assert found.outcome.discarded == 39
    assert found.outcome.timings.predicted_n == 60


def test_an_answer_that_just_fits_forgets_nothing():
    engine = FakeEngine(n_ctx=32, eog=NEVER)
    found = answer(engine, request(22, ContextShift(keep=4)))
    assert (engine.shifts_done, found.outcome.truncated) == ([()], False)


@settings(deadline=None)
@given(
    n_ctx=st.integers(16, 48),
    keep=st.integers(0, 60),
    discard=st.integers(0, 40),
    most=st.integers(1, 15),
    wrong=st.integers(0, 6),
    refeeds=st.booleans(),
    temperature=st.sampled_from([0.0, 0.8]),
)
def test_on_equals_off_across_the_end(n_ctx, keep, discard, most, wrong, refeeds, temperature):
    asked = request(90, ContextShift(keep, discard), sampling=SamplingParams(temperature=temperature, seed=3))
    off, on = (FakeEngine(n_ctx=n_ctx, eog=NEVER, refeeds=refeeds) for _ in range(2))
    plain = answer(off, asked)
    proposed = [(token + 1) % 32 if wrong and i % 7 == wrong else token for i, token in enumerate(plain.ids)]
    drafted = answer(on, asked, [replay(proposed)], most=most)
    assert drafted.outcome.timings.draft_n > 0
    assert drafted.ids == plain.ids
    assert on.shifts_done == off.shifts_done != [()]
    assert drafted.outcome.discarded == plain.outcome.discarded


def test_no_forward_reaches_over_the_end():
    engine = FakeEngine(n_ctx=32, eog=NEVER)
    plain = answer(FakeEngine(n_ctx=32, eog=NEVER), request(60, ContextShift(keep=4)))
    drafted = answer(engine, request(60, ContextShift(keep=4)), [replay(plain.ids)], most=7)
    assert drafted.ids == plain.ids
    assert engine.widths[:3] == [8, 8, 6]  # 22 tokens fill the context of the prompt's 10


def test_what_a_shift_has_fed_again_can_be_cancelled():
    engine = FakeEngine(n_ctx=64, eog=NEVER, refeeds=True)
    forwards = []
    engine.on_forward = forwards.append
    answer(engine, request(80, ContextShift(keep=4)), cancelled=lambda: len(forwards) > 60)
    assert len(forwards) == 61


def test_behind_a_shift_forwards_are_as_wide_again_as_the_lane_allows_there():
    """Beyond `max_context` cells nothing was compared; a context that forgot is before that again."""
    engine = FakeEngine(n_ctx=32, eog=NEVER)
    plain = answer(FakeEngine(n_ctx=32, eog=NEVER), request(60, ContextShift(keep=4)))
    engine.lane = replace(engine.lane, max_context=24)
    drafted = answer(engine, request(60, ContextShift(keep=4)), [replay(plain.ids)], most=7)
    assert drafted.ids == plain.ids
    held, seen = len(PROMPT), []
    for width in engine.widths:
        seen.append((held, width))
        held += width
        held -= 13 if held >= 32 else 0
    assert all(width == 1 for held, width in seen if held > 24)
    assert {width for held, width in seen if held == 32 - 13} == {6}  # up to 24 cells


@pytest.mark.parametrize("refeeds", [False, True])
def test_one_request_that_forgets_changes_none_beside_it(refeeds):
    def alone(prompt):
        return answer(FakeEngine(n_ctx=32, eog=NEVER), request(70, ContextShift(keep=4), prompt)).ids

    prompts = [PROMPT, PROMPT[:3], (9, 8, 7)]
    engine = FakeEngine(n_ctx=32, eog=NEVER, slots=3, joins=16, refeeds=refeeds)
    costs, clock, ids = CostModel(engine.lane.widths), FakeClock(), [[], [], []]
    answerings = []
    for prompt, got in zip(prompts, ids, strict=True):
        asked = request(70, ContextShift(keep=4), prompt)
        target = engine.open(prompt, asked.sampling)
        coordinator = Coordinator(engine, target, asked, controller=Always(engine), clock=clock)
        answerings.append(
            Answering(coordinator, target, lambda batch, got=got: got.extend(o.token for o in batch), bool)
        )
    turns = Turns(engine, costs, clock)
    while running := [answering for answering in answerings if not answering.ended]:
        turns.take(running)
    assert [answering.outcome().discarded > 0 for answering in answerings] == [True] * 3
    assert ids == [alone(prompt) for prompt in prompts]
