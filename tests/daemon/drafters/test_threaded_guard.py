"""A drafter on a thread of its own: what is at hand, what is late, and what is thrown away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from pilotfish.daemon.drafters.threaded_guard import ThreadedGuard
from pilotfish.daemon.drafters.worker import DrafterWorker, SameThread
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import Ack, Placement
from tests.fakes.session import SameIds

PROMPT = (5, 9, 3)
TRUTH = list(range(100, 200))
SOON = 60.0  # seconds; far more than anything here takes, on a busy machine too


def right(history: Sequence[int], k: int) -> Sequence[int]:
    at = len(history) - len(PROMPT)
    return TRUTH[at : at + k]


class Gate:
    """Lets a drafter's calls through one by one."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    def __call__(self, what: str) -> None:
        if what == "propose":
            assert self.open.wait(SOON)


@pytest.fixture
def guarded() -> Iterator[Callable[..., tuple[ScriptedDrafter, ThreadedGuard, DrafterWorker]]]:
    workers: list[DrafterWorker] = []

    def guard(script=right, *, elsewhere=False, deadline=SOON, **kwargs):
        placement = Placement.REMOTE if elsewhere else Placement.THREAD
        drafter = ScriptedDrafter(script, placement=placement, **kwargs)
        worker = DrafterWorker("scripted")
        workers.append(worker)
        guard = ThreadedGuard(drafter, SameIds(), worker, n_vocab=256, deadline=deadline)
        guard.open(fake_pin(256), PROMPT)
        return drafter, guard, worker

    yield guard
    for worker in workers:
        worker.end()


def begun(guard: ThreadedGuard, worker: DrafterWorker) -> None:
    guard.begin()
    assert worker.settle(SOON)
    guard.propose(0)


def test_a_drafter_on_this_machine_is_not_given_the_prompt_before_somebody_asks_for_it(guarded):
    drafter, guard, worker = guarded()
    assert guard.propose(4).tokens == ()
    assert worker.settle(SOON)
    assert not drafter.sessions
    assert not guard.busy
    guard.begin()
    assert worker.settle(SOON)
    assert len(drafter.sessions) == 1


def test_a_drafter_elsewhere_gets_the_prompt_at_once(guarded):
    drafter, _, worker = guarded(elsewhere=True)
    assert worker.settle(SOON)
    assert len(drafter.sessions) == 1


def test_without_patience_a_drafter_on_this_machine_computes_nothing(guarded):
    drafter, guard, worker = guarded()
    begun(guard, worker)
    asked = []
    drafter.fail = asked.append
    assert guard.propose(4).tokens == ()
    assert worker.settle(SOON)
    assert asked == []


def test_waiting_brings_the_proposal(guarded):
    _, guard, worker = guarded()
    begun(guard, worker)
    assert list(guard.propose(4, SOON).tokens) == TRUTH[:4]
    assert [timing.k for timing in guard.take_timings()] == [None, 4]


def test_what_was_not_verified_still_serves_the_next_round(guarded):
    drafter, guard, worker = guarded()
    begun(guard, worker)
    guard.propose(8, SOON)
    guard.committed(TRUTH[:3], now=True)
    asked = []  # what a drafter raises would not come through
    drafter.fail = asked.append
    assert list(guard.propose(8, SOON).tokens) == TRUTH[3:8]
    assert worker.settle(SOON)
    assert asked == []


def test_a_token_that_differs_ends_what_was_at_hand_and_the_drafter_hears_of_it(guarded):
    drafter, guard, worker = guarded()
    begun(guard, worker)
    guard.propose(8, SOON)
    guard.committed([TRUTH[0], 7], now=True)
    guard.propose(3, SOON)
    assert drafter.sessions[0].commits == [[TRUTH[0], 7]]
    assert list(drafter.sessions[0].history.tokens) == [*PROMPT, TRUTH[0], 7]


def test_a_late_proposal_is_used_as_far_as_what_was_committed_meanwhile_agrees_with_it(guarded):
    gate = Gate()
    _, guard, worker = guarded(fail=gate)
    begun(guard, worker)
    gate.open.clear()
    assert guard.propose(8, 0.01).tokens == ()
    assert guard.busy
    guard.committed(TRUTH[:2], now=False)
    gate.open.set()
    assert worker.settle(SOON)
    assert list(guard.propose(8, SOON).tokens) == TRUTH[2:8]
    assert not guard.busy


def test_a_late_proposal_for_another_text_is_thrown_away(guarded):
    gate = Gate()
    _, guard, worker = guarded(fail=gate)
    begun(guard, worker)
    gate.open.clear()
    guard.propose(8, 0.01)
    guard.committed([7], now=False)
    gate.open.set()
    assert worker.settle(SOON)
    assert guard.propose(0).tokens == ()
    assert list(guard.propose(2, SOON).tokens) == TRUTH[1:3]


def test_a_drafter_elsewhere_is_asked_ahead_and_never_counts_as_busy(guarded):
    drafter, guard, worker = guarded(elsewhere=True)
    assert worker.settle(SOON)
    assert guard.propose(4).tokens == ()  # asked now
    assert not guard.busy
    assert worker.settle(SOON)
    assert list(guard.propose(4).tokens) == TRUTH[:4]
    guard.committed(TRUTH[:5], now=True)
    assert list(guard.propose(4).tokens) == TRUTH[5:8]  # the rest, and asked again
    assert worker.settle(SOON)
    assert list(guard.propose(4).tokens) == TRUTH[5:9]
    assert drafter.sessions[0].commits == [TRUTH[:5]]


def test_one_that_hangs_past_its_deadline_is_dropped_and_its_answer_is_not_used(guarded):
    gate = Gate()
    _, guard, worker = guarded(fail=gate, deadline=0.02)
    begun(guard, worker)
    gate.open.clear()
    guard.propose(4, 0.05)
    guard.propose(4, 0.05)
    assert "deadline of 20 ms" in guard.dropped
    gate.open.set()
    assert worker.settle(SOON)
    assert guard.propose(4, SOON).tokens == ()


def test_one_that_acknowledges_another_history_is_dropped_before_its_proposal_is_used(guarded):
    drafter, guard, worker = guarded()
    begun(guard, worker)
    drafter.sessions[0].commit = lambda tokens: Ack(1, 1, "00")
    guard.committed([1], now=True)
    assert guard.propose(4, SOON).tokens == ()
    assert "acknowledged" in guard.dropped


@pytest.mark.parametrize("what", ["open", "commit"])
def test_one_that_fails_where_it_must_not_is_dropped(guarded, what):
    def fail(at):
        if at == what:
            raise RuntimeError("no route")

    _, guard, worker = guarded(fail=fail)
    begun(guard, worker)
    guard.committed([1], now=True)
    guard.propose(4, SOON)
    assert "no route" in guard.dropped


def test_three_failed_proposals_in_a_row_are_too_many(guarded):
    def fail(at):
        if at == "propose":
            raise RuntimeError("busy")

    _, guard, worker = guarded(fail=fail)
    begun(guard, worker)
    for _ in range(3):
        assert not guard.dropped
        assert guard.propose(4, SOON).tokens == ()
    assert "busy" in guard.dropped


def test_ids_outside_the_vocabulary_end_a_proposal(guarded):
    _, guard, worker = guarded(lambda history, k: [1, 2, 999, 3])
    begun(guard, worker)
    assert guard.propose(8, SOON).tokens == (1, 2)


def test_closing_waits_for_nobody_and_the_session_is_closed_when_its_thread_comes_to_it(guarded):
    gate = Gate()
    drafter, guard, worker = guarded(fail=gate)
    begun(guard, worker)
    gate.open.clear()
    guard.propose(4, 0.01)
    guard.close()
    assert drafter.sessions[0].closed == 0
    gate.open.set()
    assert worker.settle(SOON)
    assert drafter.sessions[0].closed == 1


def test_a_drafter_of_the_engines_own_library_computes_on_the_thread_that_asks():
    threads = []
    drafter = ScriptedDrafter(
        right, placement=Placement.ENGINE_THREAD, fail=lambda what: threads.append(threading.current_thread())
    )
    guard = ThreadedGuard(drafter, SameIds(), SameThread(), n_vocab=256, deadline=SOON)
    guard.open(fake_pin(256), PROMPT)
    assert threads == []
    guard.begin()
    assert list(guard.propose(4, SOON).tokens) == TRUTH[:4]
    assert not guard.busy
    guard.close()
    assert len(threads) == 3
    assert set(threads) == {threading.current_thread()}
