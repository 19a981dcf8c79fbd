"""What a seat hands to its drafter, and when."""

from __future__ import annotations

import pytest

from pilotfish.daemon.seats import Seat
from tests.fakes.drafters import ScriptedDrafter
from tests.fakes.engine import fake_pin
from tests.fakes.session import SameIds

PROMPT = (5, 9, 3)


@pytest.fixture
def seated():
    """A drafter and its open seat."""

    def seat(**kwargs):
        drafter = ScriptedDrafter(**kwargs)
        seat = Seat(drafter, SameIds(), n_vocab=32)
        seat.open(fake_pin(), PROMPT)
        return drafter, seat

    return seat


def test_tokens_committed_while_nobody_asked_come_in_one_commit_before_the_next_proposal(seated):
    drafter, seat = seated(script=lambda history, k: history[-1:])
    seat.committed([1, 2], now=False)
    seat.committed([4], now=False)
    assert drafter.sessions[0].commits == []
    assert seat.propose(3).tokens == (4,)
    assert drafter.sessions[0].commits == [[1, 2, 4]]


def test_an_inline_drafter_gets_the_whole_answer_before_it_is_closed(seated):
    drafter, seat = seated()
    seat.committed([1, 2], now=False)
    seat.close()
    assert list(drafter.sessions[0].history.tokens) == [*PROMPT, 1, 2]
    assert drafter.sessions[0].closed == 1


def test_a_dropped_drafter_is_asked_nothing_more(seated):
    def fail(what):
        if what == "commit":
            raise RuntimeError("full disk")

    drafter, seat = seated(fail=fail, script=lambda history, k: [1])
    seat.committed([2], now=True)
    assert "full disk" in seat.dropped
    assert len(seat.propose(3)) == 0
    assert drafter.sessions[0].history.round == 0
