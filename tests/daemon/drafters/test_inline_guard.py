"""What the guard of an inline drafter hands to it, and when."""

from __future__ import annotations

import pytest

from pilotfish.daemon.drafters.inline_guard import InlineGuard
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from tests.fakes.misbehaviour import RAISED
from tests.fakes.session import SameIds

PROMPT = (5, 9, 3)


@pytest.fixture
def guarded():
    """A drafter and its open guard."""

    def guard(**kwargs):
        drafter = ScriptedDrafter(**kwargs)
        guard = InlineGuard(drafter, SameIds(), n_vocab=32)
        guard.open(fake_pin(), PROMPT)
        return drafter, guard

    return guard


def test_tokens_committed_while_nobody_asked_come_in_one_commit_before_the_next_proposal(guarded):
    drafter, guard = guarded(script=lambda history, k: history[-1:])
    guard.committed([1, 2], now=False)
    guard.committed([4], now=False)
    assert drafter.sessions[0].commits == []
    assert guard.propose(3).tokens == (4,)
    assert drafter.sessions[0].commits == [[1, 2, 4]]


def test_an_inline_drafter_gets_the_whole_answer_before_it_is_closed(guarded):
    drafter, guard = guarded()
    guard.committed([1, 2], now=False)
    guard.close()
    assert list(drafter.sessions[0].history.tokens) == [*PROMPT, 1, 2]
    assert drafter.sessions[0].closed == 1


def test_a_dropped_drafter_is_asked_nothing_more(guarded):
    def fail(what):
        if what == "commit":
            raise RuntimeError("full disk")

    drafter, guard = guarded(fail=fail, script=lambda history, k: [1])
    guard.committed([2], now=True)
    assert "full disk" in guard.dropped
    assert len(guard.propose(3)) == 0
    assert drafter.sessions[0].history.round == 0


@pytest.mark.parametrize("error", RAISED)
def test_a_rollback_that_raises_empties_the_guard(error):
    def fail(at):
        if at == "rollback":
            raise error

    guard = InlineGuard(ScriptedDrafter(fail=fail), SameIds(), n_vocab=32)
    guard.open(fake_pin(), PROMPT)
    guard.rolled_back()
    assert f"rollback raised {type(error).__name__}" in guard.dropped
