"""What a draft is worth on a target that cannot cut what it rejects, on a clock that only forwards move."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.loss_account import GRACE, MAX_LOSS
from pilotfish.daemon.core.target_session import going_back_of
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import Proposal, SamplingParams
from tests.fakes.session import Answer, answer

PROMPT = (5, 9, 3, 7)
PLAIN = 0.010  # seconds
CHEAP = {width: PLAIN * (1 + 0.1 * (width - 1)) for width in range(1, 17)}
QUICK, SLOW = 0.1 * PLAIN, 30 * PLAIN  # seconds that going back takes


class Target:
    """An engine that takes blocks back in `back` seconds, what it cost, and the ids of its plain answer."""

    def __init__(self, back: float | None, costs: dict[int, float] = CHEAP, *, certified: bool = True) -> None:
        self.clock = FakeClock()
        self.engine = FakeEngine(
            n_ctx=8192,
            eog=frozenset(),
            on_forward=lambda width: self.clock.advance(costs[width]),
            going_back=back,
            on_back=lambda: self.clock.advance(back or 0.0),
        )
        self.costs = CostModel(self.engine.lane.widths, going_back_of(self.engine))
        if certified:
            self.costs.seed((width, 64, seconds) for width, seconds in costs.items())

    def answer(self, n: int, drafter: ScriptedDrafter | None) -> Answer:
        request = GenerationRequest(PROMPT, SamplingParams(temperature=0), n_predict=n)
        controller = Controller(self.costs, max_width=16)
        drafters = [drafter] if drafter else []
        return answer(self.engine, request, drafters, controller=controller, clock=self.clock)

    @property
    def drafted(self) -> int:
        """Forwards of more than one token, the prompt's apart."""
        return sum(width > 1 for width in self.engine.widths)


def plain_ids(n: int) -> list[int]:
    return Target(None).answer(n, None).ids


def partly_right(n: int, right: float, confidence: float = 0.9, seed: int = 0) -> ScriptedDrafter:
    """Each of its tokens is right with that probability."""
    ids, rng = plain_ids(n), random.Random(seed)

    def guess(history, k):
        at = len(history) - len(PROMPT)
        return [token if rng.random() < right else 0 for token in ids[at : at + k]]

    return ScriptedDrafter(guess, confidence=confidence)


def test_drafts_that_are_right_save_as_much_as_where_rejected_tokens_are_cut():
    cuts, restores = Target(None), Target(QUICK)
    for target in (cuts, restores):
        assert target.answer(200, partly_right(200, 1.0)).ids == plain_ids(200)
    assert restores.drafted > 10
    assert not restores.engine.again
    assert restores.clock.now <= 1.2 * cuts.clock.now  # it begins more carefully


def test_the_more_going_back_takes_the_surer_a_draft_has_to_be():
    drafted = []
    for back in (None, QUICK, SLOW):
        target = Target(back)
        assert target.answer(300, partly_right(300, 0.8)).ids == plain_ids(300)
        drafted.append(target.drafted)
    assert min(drafted[:2]) > 25  # still worth it
    assert drafted[2] < 5


def test_a_draft_is_no_longer_than_what_is_probably_right():
    controllers = {}
    for back in (None, 2 * PLAIN):
        target = Target(back)
        target.answer(64, partly_right(64, 1.0, confidence=0.9))
        controllers[back] = Controller(target.costs, max_width=16)
        controllers[back].account.gain = target.costs.gain = 1.0
    said = Proposal((1,) * 15, (0.9, 0.9, 0.9, *[0.3] * 12))
    cuts, restores = (controllers[back].best_length(said, "new", 70) for back in (None, 2 * PLAIN))
    assert restores.k <= cuts.k
    assert restores.worth < cuts.worth
    assert restores.width == 1 + restores.k  # filled up it would always be taken back


def test_what_going_back_was_seen_to_take_replaces_what_it_was_taken_for():
    target = Target(QUICK)
    before = target.costs.again(1, 100)
    target.answer(200, partly_right(200, 0.7, seed=3))
    assert target.engine.again
    committed = target.engine.again[0]
    assert target.costs.again(committed, 100) == pytest.approx(QUICK + CHEAP[committed], rel=0.01)
    assert before == QUICK  # a plain step was not timed yet
    assert target.costs.per_token == pytest.approx(0, abs=1e-9)  # and is not taken for what delivering takes


@settings(deadline=None, max_examples=20)
@given(
    slope=st.floats(0.0, 2.0),
    back=st.floats(0.0, 4.0),
    right=st.floats(0, 1),
    confidence=st.floats(0, 1),
    n=st.integers(50, 200),
    seed=st.integers(0, 999),
)
def test_the_loss_stays_within_the_account_whatever_going_back_takes(slope, back, right, confidence, n, seed):
    costs = {width: PLAIN * (1 + slope * (width - 1)) for width in range(1, 17)}
    plain, target = Target(None, costs), Target(back * PLAIN, costs)
    ids = plain.answer(n, None).ids
    assert target.answer(n, partly_right(n, right, confidence, seed)).ids == ids
    credit = MAX_LOSS * n * PLAIN + 2 * costs[16] + back * PLAIN  # at most: a block that was followed, and taken back
    assert target.clock.now <= plain.clock.now + MAX_LOSS * n * PLAIN + GRACE * PLAIN + credit + 1e-9
