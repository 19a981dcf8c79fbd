"""A drafter on a thread of its own: what is at hand, what is late, and what is thrown away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from pilotfish.daemon.drafters.threaded_guard import ThreadedSeat
from pilotfish.daemon.drafters.worker import SameThread, Worker
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import Ack
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
def seated() -> Iterator[Callable[..., tuple[ScriptedDrafter, ThreadedSeat, Worker]]]:
    workers: list[Worker] = []

    def seat(script=right, *, elsewhere=False, deadline=SOON, **kwargs):
        drafter = ScriptedDrafter(script, inline=False, **kwargs)
        drafter.elsewhere = elsewhere
        worker = Worker("scripted")
        workers.append(worker)
        seat = ThreadedSeat(drafter, SameIds(), worker, n_vocab=256, deadline=deadline)
        seat.open(fake_pin(256), PROMPT)
        return drafter, seat, worker

    yield seat
    for worker in workers:
        worker.end()


def begun(seat: ThreadedSeat, worker: Worker) -> None:
    seat.begin()
    assert worker.settle(SOON)
    seat.propose(0)


def test_a_drafter_on_this_machine_is_not_given_the_prompt_before_somebody_asks_for_it(seated):
    drafter, seat, worker = seated()
    assert seat.propose(4).tokens == ()
    assert worker.settle(SOON)
    assert not drafter.sessions
    assert not seat.busy
    seat.begin()
    assert worker.settle(SOON)
    assert len(drafter.sessions) == 1


def test_a_drafter_elsewhere_gets_the_prompt_at_once(seated):
    drafter, _, worker = seated(elsewhere=True)
    assert worker.settle(SOON)
    assert len(drafter.sessions) == 1


def test_without_patience_a_drafter_on_this_machine_computes_nothing(seated):
    drafter, seat, worker = seated()
    begun(seat, worker)
    asked = []
    drafter.fail = asked.append
    assert seat.propose(4).tokens == ()
    assert worker.settle(SOON)
    assert asked == []


def test_waiting_brings_the_proposal(seated):
    _, seat, worker = seated()
    begun(seat, worker)
    assert list(seat.propose(4, SOON).tokens) == TRUTH[:4]
    assert [timing.k for timing in seat.timings] == [None, 4]


def test_what_was_not_verified_still_serves_the_next_round(seated):
    drafter, seat, worker = seated()
    begun(seat, worker)
    seat.propose(8, SOON)
    seat.committed(TRUTH[:3], now=True)
    asked = []  # what a drafter raises would not come through
    drafter.fail = asked.append
    assert list(seat.propose(8, SOON).tokens) == TRUTH[3:8]
    assert worker.settle(SOON)
    assert asked == []


def test_a_token_that_differs_ends_what_was_at_hand_and_the_drafter_hears_of_it(seated):
    drafter, seat, worker = seated()
    begun(seat, worker)
    seat.propose(8, SOON)
    seat.committed([TRUTH[0], 7], now=True)
    seat.propose(3, SOON)
    assert drafter.sessions[0].commits == [[TRUTH[0], 7]]
    assert list(drafter.sessions[0].history.tokens) == [*PROMPT, TRUTH[0], 7]


def test_a_late_proposal_is_used_as_far_as_what_was_committed_meanwhile_agrees_with_it(seated):
    gate = Gate()
    _, seat, worker = seated(fail=gate)
    begun(seat, worker)
    gate.open.clear()
    assert seat.propose(8, 0.01).tokens == ()
    assert seat.busy
    seat.committed(TRUTH[:2], now=False)
    gate.open.set()
    assert worker.settle(SOON)
    assert list(seat.propose(8, SOON).tokens) == TRUTH[2:8]
    assert not seat.busy


def test_a_late_proposal_for_another_text_is_thrown_away(seated):
    gate = Gate()
    _, seat, worker = seated(fail=gate)
    begun(seat, worker)
    gate.open.clear()
    seat.propose(8, 0.01)
    seat.committed([7], now=False)
    gate.open.set()
    assert worker.settle(SOON)
    assert seat.propose(0).tokens == ()
    assert list(seat.propose(2, SOON).tokens) == TRUTH[1:3]


def test_a_drafter_elsewhere_is_asked_ahead_and_never_counts_as_busy(seated):
    drafter, seat, worker = seated(elsewhere=True)
    assert worker.settle(SOON)
    assert seat.propose(4).tokens == ()  # asked now
    assert not seat.busy
    assert worker.settle(SOON)
    assert list(seat.propose(4).tokens) == TRUTH[:4]
    seat.committed(TRUTH[:5], now=True)
    assert list(seat.propose(4).tokens) == TRUTH[5:8]  # the rest, and asked again
    assert worker.settle(SOON)
    assert list(seat.propose(4).tokens) == TRUTH[5:9]
    assert drafter.sessions[0].commits == [TRUTH[:5]]


def test_one_that_hangs_past_its_deadline_is_dropped_and_its_answer_is_not_used(seated):
    gate = Gate()
    _, seat, worker = seated(fail=gate, deadline=0.02)
    begun(seat, worker)
    gate.open.clear()
    seat.propose(4, 0.05)
    seat.propose(4, 0.05)
    assert "deadline of 20 ms" in seat.dropped
    gate.open.set()
    assert worker.settle(SOON)
    assert seat.propose(4, SOON).tokens == ()


def test_one_that_acknowledges_another_history_is_dropped_before_its_proposal_is_used(seated):
    drafter, seat, worker = seated()
    begun(seat, worker)
    drafter.sessions[0].commit = lambda tokens: Ack(1, 1, "00")
    seat.committed([1], now=True)
    assert seat.propose(4, SOON).tokens == ()
    assert "acknowledged" in seat.dropped


@pytest.mark.parametrize("what", ["open", "commit"])
def test_one_that_fails_where_it_must_not_is_dropped(seated, what):
    def fail(at):
        if at == what:
            raise RuntimeError("no route")

    _, seat, worker = seated(fail=fail)
    begun(seat, worker)
    seat.committed([1], now=True)
    seat.propose(4, SOON)
    assert "no route" in seat.dropped


def test_three_failed_proposals_in_a_row_are_too_many(seated):
    def fail(at):
        if at == "propose":
            raise RuntimeError("busy")

    _, seat, worker = seated(fail=fail)
    begun(seat, worker)
    for _ in range(3):
        assert not seat.dropped
        assert seat.propose(4, SOON).tokens == ()
    assert "busy" in seat.dropped


def test_ids_outside_the_vocabulary_end_a_proposal(seated):
    _, seat, worker = seated(lambda history, k: [1, 2, 999, 3])
    begun(seat, worker)
    assert seat.propose(8, SOON).tokens == (1, 2)


def test_closing_waits_for_nobody_and_the_session_is_closed_when_its_thread_comes_to_it(seated):
    gate = Gate()
    drafter, seat, worker = seated(fail=gate)
    begun(seat, worker)
    gate.open.clear()
    seat.propose(4, 0.01)
    seat.close()
    assert drafter.sessions[0].closed == 0
    gate.open.set()
    assert worker.settle(SOON)
    assert drafter.sessions[0].closed == 1


def test_a_drafter_of_the_engines_own_library_computes_on_the_thread_that_asks():
    threads = []
    drafter = ScriptedDrafter(right, inline=False, fail=lambda what: threads.append(threading.current_thread()))
    seat = ThreadedSeat(drafter, SameIds(), SameThread(), n_vocab=256, deadline=SOON)
    seat.open(fake_pin(256), PROMPT)
    assert threads == []
    seat.begin()
    assert list(seat.propose(4, SOON).tokens) == TRUTH[:4]
    assert not seat.busy
    seat.close()
    assert len(threads) == 3
    assert set(threads) == {threading.current_thread()}
