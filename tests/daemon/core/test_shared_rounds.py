"""Rounds that share forwards, on a clock that only moves with them: what goes together, what a draft has to earn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.daemon.core.answering import Answering
from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.coordinator import Coordinator
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.loss_account import GRACE, MAX_LOSS
from pilotfish.daemon.core.turns import Turns
from pilotfish.daemon.drafters.pool import guard_for
from pilotfish.daemon.drafters.worker import DrafterWorker
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import NoisyDrafter, ScriptedDrafter
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import SamplingParams
from tests.fakes.session import PATIENCE, Always, SameIds

STEP = 0.010  # seconds
N = 300  # tokens of each answer

Cost = Callable[[int], float]  # rows -> seconds


def cheap(rows: int) -> float:
    """Rows cost little beside the forward: memory is what takes the time."""
    return STEP * (1 + 0.05 * (rows - 1))


def dear(rows: int) -> float:
    """Every row costs nearly a step: computing is what takes the time."""
    return STEP * (0.2 + 0.8 * rows)


class Bench:
    """Requests in a fake engine that can join them, each with a drafter that is `wrong` so often."""

    def __init__(
        self,
        cost: Cost,
        requests: int,
        *,
        wrong: float,
        always: bool = False,
        joins: int = 16,
        drafter: Callable[[FakeEngine], ScriptedDrafter] | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.engine = FakeEngine(
            n_ctx=8192,
            eog=frozenset(),
            slots=requests,
            joins=joins,
            on_forward=lambda rows: self.clock.advance(cost(rows)),
        )
        self.costs = CostModel(self.engine.lane.widths)
        self.ids: list[list[int]] = [[] for _ in range(requests)]
        self._drafter = drafter
        self.answerings = [self._begin(i, wrong, always) for i in range(requests)]

    def _begin(self, i: int, wrong: float, always: bool) -> Answering:
        request = GenerationRequest((5, 9, 3, 7 + i), SamplingParams(temperature=0), N)
        truth = self.engine.candidates
        drafter: ScriptedDrafter = (
            ScriptedDrafter()
            if wrong >= 1
            else NoisyDrafter(lambda history: truth(history, 1)[0], wrong=wrong, n_vocab=32, seed=i)
        )
        if self._drafter is not None:
            drafter = self._drafter(self.engine)
        guard = guard_for(drafter, SameIds(), DrafterWorker("it"), n_vocab=32, deadline=PATIENCE)
        guard.open(fake_pin(), request.prompt)
        controller = Always(self.engine) if always else Controller(self.costs, max_width=16)
        target = self.engine.open(request.prompt, request.sampling)
        coordinator = Coordinator(self.engine, target, request, guards=[guard], controller=controller, clock=self.clock)
        return Answering(coordinator, target, lambda tokens: self.ids[i].extend(t.token for t in tokens), bool)

    def run(self) -> float:
        """Seconds until all have ended."""
        turns = Turns(self.engine, self.costs, self.clock)
        while running := [answering for answering in self.answerings if not answering.ended]:
            turns.take(running)
        return self.clock.now

    def run_ids(self) -> list[list[int]]:
        """The answers."""
        self.run()
        return self.ids


def test_those_who_verify_nothing_share_one_forward():
    bench = Bench(cheap, 3, wrong=1.0)
    bench.run()
    assert set(bench.engine.widths) == {3}
    assert len(bench.engine.widths) == N


def test_where_the_lane_ends_everyone_steps_alone():
    bench = Bench(cheap, 2, wrong=1.0)
    bench.engine.lane = replace(bench.engine.lane, max_context=20)
    bench.run()
    shared = bench.engine.widths.index(1)
    assert bench.engine.widths[:shared] == [2] * (20 - 4 + 1)  # the prompt has 4 tokens, of which one is pending
    assert set(bench.engine.widths[shared:]) == {1}


def test_no_more_than_may_be_together_share_one():
    bench = Bench(cheap, 3, wrong=1.0, joins=2)
    bench.run()
    assert bench.engine.widths == [2, 1] * N


def test_where_rows_are_cheap_drafts_of_all_share_forwards_and_all_gain():
    plain, drafted = Bench(cheap, 4, wrong=1.0), Bench(cheap, 4, wrong=0.05)
    assert drafted.run() < 0.8 * plain.run()
    assert drafted.ids == plain.ids
    assert max(drafted.engine.widths) > 8


def test_where_rows_are_dear_a_draft_gives_way_to_the_others_steps():
    """Alone such a draft would be verified: 4 tokens for 3.4 steps. Beside three others it would cost them more."""
    plain, drafted = Bench(dear, 4, wrong=1.0), Bench(dear, 4, wrong=0.25)
    assert drafted.run() < plain.run() * (1 + MAX_LOSS) + 8 * GRACE * STEP
    assert drafted.ids == plain.ids
    steps = drafted.engine.widths.count(4)
    assert steps > 0.9 * len(drafted.engine.widths)


@settings(deadline=None, max_examples=20)
@given(
    first=st.floats(0.1, 1),
    per_row=st.floats(0.01, 1),
    wrong=st.floats(0, 1),
    requests=st.integers(2, 4),
    joins=st.sampled_from([4, 8, 16]),
)
def test_nothing_is_slower_than_plain_forwards_that_all_share(first, per_row, wrong, requests, joins):
    def cost(rows: int) -> float:
        return STEP * (first + per_row * rows)

    plain = Bench(cost, requests, wrong=1.0, joins=joins).run()
    drafted = Bench(cost, requests, wrong=wrong, joins=joins)
    seconds = drafted.run()
    assert seconds <= plain * (1 + MAX_LOSS) + 4 * requests * GRACE * cost(requests)


@pytest.mark.parametrize(("requests", "per_row"), [(2, 0.1), (2, 0.15), (3, 0.15)])
def test_those_who_draft_in_one_turn_stake_what_the_model_may_lose_once(requests, per_row):
    """Each is sure of itself, wrong, and new, so that all of them would stake the whole of it."""

    def cost(rows: int) -> float:
        return STEP * (1 + per_row * (rows - 1))

    bench = Bench(cost, requests, wrong=0.0, joins=64, drafter=wrong_and_sure)
    for width in bench.engine.lane.widths:
        for together in range(1, min(requests, bench.engine.together(width)) + 1):
            bench.costs.observe_forward(width, 10, together, cost(together * width))
            bench.costs.observe_forward(width, 10, together, cost(together * width))
    left: list[float] = []
    turns = Turns(bench.engine, bench.costs, bench.clock)
    while running := [answering for answering in bench.answerings if not answering.ended]:
        turns.take(running)
        left += [answering.controller.account.of_model for answering in running]
    assert max(bench.engine.widths) > requests
    assert min(left) >= -1e-9


def wrong_and_sure(engine: FakeEngine) -> ScriptedDrafter:
    return ScriptedDrafter(lambda history, k: [(1 + engine.candidates(history, 1)[0]) % 32] * k, confidence=1.0)


def test_proposals_of_one_length_share_a_forward_where_they_are_insisted_on():
    bench = Bench(cheap, 2, wrong=0.0, always=True, joins=64)
    bench.run()
    assert any(rows % 2 == 0 and rows > 2 for rows in bench.engine.widths)
    assert bench.ids == Bench(cheap, 2, wrong=1.0).run_ids()


@pytest.mark.parametrize("joins", [1, 8])
def test_a_shared_forward_that_fails_ends_those_that_were_in_it_and_the_engine_serves_the_next(joins):
    bench = Bench(cheap, 2, wrong=1.0, joins=joins)
    forwards = iter(range(1000))

    def fail(rows: int) -> None:
        if next(forwards) == 5:
            raise EngineError("out of memory")

    bench.engine.on_forward = fail
    bench.run()
    failed = [_error(answering) for answering in bench.answerings]
    assert failed.count(EngineError) == (2 if joins > 1 else 1)
    assert bench.engine.open_sessions == 0


def test_one_that_takes_its_rows_badly_does_not_spoil_the_others():
    bench = Bench(cheap, 3, wrong=1.0)

    def broken(tokens: Sequence[object]) -> None:
        raise RuntimeError("the reader broke")

    bench.answerings[1]._emit = broken
    bench.run()
    assert _error(bench.answerings[1]) is RuntimeError
    assert [len(ids) for ids in bench.ids] == [N, 0, N]


def _error(answering: Answering) -> type[BaseException] | None:
    try:
        answering.outcome()
    except BaseException as error:
        return type(error)
    return None
