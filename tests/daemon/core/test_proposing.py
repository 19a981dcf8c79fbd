"""Who is asked in a round, who is waited for, and what is learned of proposals that lost."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.daemon.core.controller import Choice, Eager, WaitBudget
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.proposing import Proposing
from pilotfish.daemon.drafters.guard import BaseGuard, Timing
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import EMPTY, Proposal, TargetPin
from tests.fakes.session import SameIds


class ScriptedGuard(BaseGuard):
    """Has `at_hand` ready, and `later` for those who wait, which takes a second."""

    elsewhere = busy = False

    def __init__(self, name: str, clock: FakeClock, *, at_hand: Sequence[int] = (), later: Sequence[int] = ()) -> None:
        super().__init__(ScriptedDrafter(name=name), SameIds(), n_vocab=32)
        self.awaited = self.begun = bool(later)
        self.waits = 0
        self._clock, self._at_hand, self._later = clock, Proposal(tuple(at_hand)), Proposal(tuple(later))

    def open(self, target: TargetPin, prompt: Sequence[int]) -> None: ...

    def begin(self) -> None:
        self.begun = True

    def propose(self, k: int, patience: float = 0.0, *, from_the_start: bool = False) -> Proposal:
        if patience == 0 or not self.begun:
            return self._at_hand.first(k)
        self.waits += 1
        self._clock.advance(1)
        return self._later.first(k)

    def take_timings(self) -> list[Timing]:
        return []

    def committed(self, tokens: Sequence[int], *, now: bool) -> None: ...

    def rolled_back(self) -> None: ...

    def close(self) -> None: ...


class Longest(Eager):
    """Takes the longest proposal, and waits where it has none yet."""

    def __init__(self, *, opens: bool = True) -> None:
        super().__init__(CostModel(tuple(range(1, 9))), max_width=8)
        self.opens = opens
        self.learned: list[tuple[str, int, int]] = []

    def may_open(self, drafter: str, prompt_tokens: int) -> bool:
        return self.opens

    def wait_budget(self, drafter: str, position: int, k: int, best: Choice, waited: float = 0.0) -> WaitBudget | None:
        return WaitBudget(k, patience=9.0) if best.k == 0 else None

    def observe_proposal(self, drafter: str, proposal: Proposal, right: int, seen: int) -> None:
        self.learned.append((drafter, right, seen))


def proposing(*guards: ScriptedGuard, clock: FakeClock, controller: Longest | None = None) -> Proposing:
    return Proposing(guards, controller or Longest(), clock)


def test_the_best_of_all_proposals_is_the_draft_and_the_others_were_heard() -> None:
    clock = FakeClock()
    short, long = ScriptedGuard("short", clock, at_hand=[1]), ScriptedGuard("long", clock, at_hand=[1, 2, 3])
    draft = proposing(short, long, clock=clock).draft(position=10, room=8)
    assert (draft.guard, draft.proposal.tokens) == (long, (1, 2, 3))
    assert [guard.name for guard, _ in draft.heard] == ["short", "long"]


def test_a_proposal_leaves_room_for_the_token_after_it() -> None:
    clock = FakeClock()
    guard = ScriptedGuard("long", clock, at_hand=[1, 2, 3])
    assert proposing(guard, clock=clock).draft(10, room=3).proposal.tokens == (1, 2)
    assert proposing(guard, clock=clock).draft(10, room=1).proposal is EMPTY


def test_a_slow_drafter_is_waited_for_where_nothing_is_at_hand_and_the_wait_is_counted() -> None:
    clock = FakeClock()
    slow = ScriptedGuard("slow", clock, later=[4, 5])
    draft = proposing(slow, clock=clock).draft(10, room=8)
    assert (draft.guard, draft.proposal.tokens, slow.waits) == (slow, (4, 5), 1)
    assert draft.waited >= 1


def test_a_slow_drafter_is_not_waited_for_beside_a_proposal_at_hand() -> None:
    clock = FakeClock()
    slow = ScriptedGuard("slow", clock, later=[4, 5])
    assert proposing(ScriptedGuard("quick", clock, at_hand=[1]), slow, clock=clock).draft(10, 8).proposal.tokens == (1,)
    assert slow.waits == 0


def test_a_drafter_that_answers_at_once_is_not_asked_twice() -> None:
    clock = FakeClock()
    quick = ScriptedGuard("quick", clock)
    assert proposing(quick, clock=clock).draft(10, 8).guard is None
    assert quick.waits == 0


def test_a_prompt_is_only_given_where_the_controller_finds_it_worth_its_price() -> None:
    clock = FakeClock()
    slow = ScriptedGuard("slow", clock, later=[4, 5])
    slow.begun = False
    assert proposing(slow, clock=clock, controller=Longest(opens=False)).draft(10, 8).proposal is EMPTY
    assert not slow.begun
    draft = proposing(slow, clock=clock).draft(10, 8)
    assert (slow.begun, draft.contended, draft.proposal.tokens) == (True, True, (4, 5))


def test_a_proposal_that_lost_is_compared_with_what_was_committed_the_winners_is_not() -> None:
    clock, controller = FakeClock(), Longest()
    short, long = ScriptedGuard("short", clock, at_hand=[1, 7]), ScriptedGuard("long", clock, at_hand=[1, 2, 3])
    asked = proposing(short, long, clock=clock, controller=controller)
    asked.observe(asked.draft(10, 8), committed=[1, 2, 9])
    assert controller.learned == [("short", 1, 2)]
