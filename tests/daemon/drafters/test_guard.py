"""Whatever a drafter or its bridge raises or returns, in both kinds of guard."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.daemon.drafters.pool import guard_for
from pilotfish.daemon.drafters.proposals import Refusals
from pilotfish.daemon.drafters.worker import DrafterWorker
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import Ack, Placement, Proposal, TokenizerPin
from tests.fakes.misbehaviour import JUNK, RAISED, Evil
from tests.fakes.session import SameIds

PROMPT = (5, 9, 3)
SOON = 60.0  # seconds; far more than anything here takes


class Spoken(ScriptedDrafter):
    """Answers `answers` one after another, then sound proposals."""

    def __init__(self, *answers: object, **kwargs: object) -> None:
        super().__init__(lambda history, k: [7][:k], **kwargs)
        self._answers = list(answers)

    def open(self, target, prompt):
        session = super().open(target, prompt)
        sound = session.propose
        session.propose = lambda k: self._answers.pop(0) if self._answers else sound(k)
        return session


@pytest.fixture(params=[Placement.INLINE, Placement.THREAD])
def opened(request):
    """Give a drafter a guard of its kind; `asked` is what it proposes when it is waited for."""
    workers = []

    def guard(drafter, bridge=None, refusals=None):
        worker = DrafterWorker("w")
        workers.append(worker)
        guard = guard_for(drafter, bridge or SameIds(), worker, n_vocab=32768, deadline=SOON, refusals=refusals)
        guard.open(fake_pin(32768), PROMPT)
        guard.begin()
        assert worker.settle(SOON)
        return guard

    guard.placement = request.param
    yield guard
    for worker in workers:
        assert worker.settle(SOON)
        worker.end()


def asked(guard, k=4):
    return guard.propose(k, SOON).tokens


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("what", ["open", "propose", "commit", "close"])
def test_whatever_a_drafter_raises_costs_no_more_than_its_proposals(opened, what, error):
    def fail(at):
        if at == what:
            raise error

    guard = opened(ScriptedDrafter(lambda history, k: [7], placement=opened.placement, fail=fail))
    expected = () if what in ("open", "propose") else (7,)
    assert asked(guard) == expected
    guard.committed([7], now=True)
    assert asked(guard) == (() if what == "commit" else expected)
    guard.committed([7], now=True)
    guard.rolled_back()
    guard.close()
    if what in ("open", "commit"):
        assert f"{what} raised {type(error).__name__}" in guard.dropped
    assert guard.refusals.count == (2 if what == "propose" else 0)


@pytest.mark.parametrize("junk", JUNK)
def test_what_is_no_sound_proposal_costs_it_and_is_counted(opened, junk):
    guard = opened(Spoken(junk, placement=opened.placement))
    assert asked(guard) == ()
    assert (guard.refusals.count, guard.dropped) == (1, "")
    assert str(guard.refusals).startswith("1 proposal refused, the last: propose")  # or "proposed"
    assert asked(guard) == (7,)


def test_refusals_are_counted_beyond_the_session(opened):
    refusals = Refusals()
    for _ in range(2):
        guard = opened(Spoken([5], "six", placement=opened.placement), refusals=refusals)
        assert asked(guard) == asked(guard) == ()
        guard.close()
    assert str(refusals) == (
        "4 proposals refused, the last: proposed a str, not a Proposal; return a Proposal, or EMPTY"
    )


def test_three_unsound_proposals_in_a_row_are_too_many(opened):
    guard = opened(Spoken([1], [2], [3], placement=opened.placement))
    assert asked(guard) == asked(guard) == asked(guard) == ()
    assert "not a Proposal" in guard.dropped


def test_an_id_outside_the_vocabulary_ends_a_proposal_and_is_no_refusal(opened):
    guard = opened(Spoken(Proposal((12, 40000)), placement=opened.placement))
    assert asked(guard) == (12,)
    assert guard.refusals.count == 0


@pytest.mark.parametrize(
    "ack",
    [None, 5, Evil(), Ack(1, 4, "00"), Ack(Evil(), 4, "00")],
    ids=["nothing", "a number", "an object", "another history", "an object inside"],
)
def test_an_acknowledgement_that_is_none_empties_the_guard(opened, ack):
    class Liar(ScriptedDrafter):
        def open(self, target, prompt):
            session = super().open(target, prompt)
            session.commit = lambda tokens: ack
            return session

    guard = opened(Liar(lambda history, k: [7], placement=opened.placement))
    guard.committed([7], now=True)
    assert asked(guard) == ()
    assert guard.dropped


class Twisted(SameIds):
    """A bridge that answers what it is told to."""

    def __init__(self, **answers: Callable[[object], object]) -> None:
        for name, answer in answers.items():
            setattr(self, name, answer)


@pytest.mark.parametrize("junk", [junk for junk in JUNK if junk.id != "more than was asked for"])
def test_what_a_bridge_makes_of_a_proposal_is_looked_at_as_well(opened, junk):
    guard = opened(
        ScriptedDrafter(lambda history, k: [7], placement=opened.placement), Twisted(to_target=lambda p: junk)
    )
    assert asked(guard) == ()
    assert guard.refusals.count == 1


def test_a_bridge_may_make_more_ids_of_a_proposal_than_were_asked_for(opened):
    twice = Twisted(to_target=lambda proposal: Proposal(proposal.tokens * 2))
    assert asked(opened(ScriptedDrafter(lambda h, k: [7, 8, 9], placement=opened.placement), twice)) == (7, 8, 9, 7)


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("what", ["to_drafter", "to_target", "drafter_ids"])
def test_whatever_a_bridge_raises_costs_no_more_than_the_proposal(opened, what, error):
    def fail(argument):
        raise error

    guard = opened(ScriptedDrafter(lambda history, k: [7], placement=opened.placement), Twisted(**{what: fail}))
    assert asked(guard) == ()
    guard.committed([7], now=True)
    guard.close()
    assert bool(guard.dropped) == (what == "to_drafter" or guard.dropped == "closed")


@pytest.mark.parametrize(
    "junk",
    [None, 5, "text", ["text"], [2**70], (i for i in (5,)), Evil()],
    ids=["nothing", "a number", "a text", "texts", "70 bits", "a generator", "an object"],
)
def test_ids_from_a_bridge_that_are_none_empty_the_guard(opened, junk):
    given = iter([[5, 9, 3]])
    bridge = Twisted(to_drafter=lambda ids: next(given, junk))
    guard = opened(ScriptedDrafter(lambda history, k: [7], placement=opened.placement), bridge)
    guard.committed([7], now=True)
    assert asked(guard) == ()
    assert guard.dropped


def test_a_drafter_with_a_vocabulary_of_its_own_gives_the_bridge_ids_of_it_only(opened):
    seen = []
    drafter = ScriptedDrafter(lambda history, k: [7, 99, 8], placement=opened.placement)
    drafter.vocabulary = FakeVocabulary(TokenizerPin("own", "fake", 32))
    guard = opened(drafter, Twisted(to_target=lambda proposal: seen.append(proposal.tokens) or proposal))
    assert asked(guard) == (7,)
    assert seen == [(7,)]
