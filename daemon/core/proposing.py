"""What the drafters have to say in one round, and what of it is worth verifying.

Every guard is asked for what it has at hand. Then those that would have to be waited for, in the order of preference,
as long as the controller expects more of it than of the best so far. Of each proposal the controller says how many
tokens to verify; the one that promises to save the most time wins, and none where plain decoding does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pilotfish.daemon.core.controller import Choice, Controller
from pilotfish.daemon.drafters.guard import Guard
from pilotfish.hooks.types import EMPTY, Proposal, shared_prefix


@dataclass(slots=True)
class Draft:
    """The proposal to verify and whose it is; `guard` is None for a plain step."""

    position: int
    guard: Guard | None = None
    proposal: Proposal = EMPTY
    width: int = 0  # of the forward that the proposal was chosen for; the rest is filled up
    heard: list[tuple[Guard, Proposal]] = field(default_factory=list)  # every proposal, verified or not
    waited: float = 0.0  # seconds, for drafters that are not called directly
    contended: bool = False  # one of them computed on this machine besides

    @property
    def tokens(self) -> tuple[int, ...]:
        """What goes into the forward behind the pending token: the proposal, and copies of its end up to the width.

        Nothing is read from the copies' rows. They are there where a wider forward costs less.
        """
        tokens = self.proposal.tokens
        return tokens + tokens[-1:] * (self.width - 1 - len(tokens)) if tokens else tokens

    def cut(self, k: int) -> None:
        """Verify `k` tokens of the proposal at most."""
        self.proposal, self.width = self.proposal.first(k), 0
        if not self.proposal:
            self.guard = None

    def is_heard(self, guard: Guard) -> bool:
        """Whether this drafter has proposed something already."""
        return any(heard is guard for heard, _ in self.heard)


class Proposing:
    """Asks a request's drafters on behalf of its rounds. `clock` is in seconds."""

    def __init__(self, guards: Sequence[Guard], controller: Controller, clock: Callable[[], float]) -> None:
        self._guards = guards
        self._controller = controller
        self._clock = clock

    @property
    def busy(self) -> bool:
        """Whether a drafter computes on this machine while the target does."""
        return any(guard.busy for guard in self._guards)

    def draft(self, position: int, room: int) -> Draft:
        """The draft of the round at `position`, which may commit `room` tokens: a proposal has one less at most."""
        draft = Draft(position, contended=self.busy)
        k = self._controller.plan(position, room - 1)
        if k <= 0:
            return draft
        best = self._controller.plain(position)
        guards = self._guards
        if self._controller.parked or self._controller.looking:  # who costs time rests
            guards = [guard for guard in guards if not guard.awaited]
        for guard in guards:
            best = self._consider(draft, best, guard, guard.propose(k), k)
        for guard in guards:
            if guard.awaited:
                best = self._wait(draft, best, guard, k)
        if draft.guard is None and draft.heard:
            self._controller.forgo([(guard.name, proposal) for guard, proposal in draft.heard], position, k)
        return draft

    def observe(self, draft: Draft, committed: Sequence[int]) -> None:
        """Learn how right the proposals were that lost: they can be compared with what was committed as well."""
        self._controller.account.committed(committed, verified=draft.guard is not None)
        for guard, proposal in draft.heard:
            if guard is not draft.guard:
                right = shared_prefix(proposal.tokens, committed)
                self._controller.observe_proposal(guard.name, proposal, right, min(len(proposal), len(committed)))

    def _consider(self, draft: Draft, best: Choice, guard: Guard, proposal: Proposal, room: int) -> Choice:
        """Take the proposal if it promises more than the best so far."""
        if not proposal:
            return best
        draft.heard.append((guard, proposal))
        choice = self._controller.best_length(proposal, guard.name, draft.position, draft.waited, room)
        if choice.k == 0 or choice.worth <= best.worth:
            return best
        draft.guard, draft.proposal, draft.width = guard, proposal.first(choice.k), choice.width
        return choice

    def _wait(self, draft: Draft, best: Choice, guard: Guard, k: int) -> Choice:
        """Ask a slow drafter if waiting for it promises more than the best so far."""
        self._learn_timings(guard)
        if draft.is_heard(guard):
            return best
        terms = self._controller.wait_budget(guard.name, draft.position, k, best, draft.waited)
        if terms is None or not self._has_begun(draft, guard):
            return best
        started = self._clock()
        proposal = guard.propose(terms.k, terms.patience, from_the_start=terms.from_the_start)
        draft.waited += self._clock() - started
        self._learn_timings(guard)
        return self._consider(draft, best, guard, proposal, k)

    def _has_begun(self, draft: Draft, guard: Guard) -> bool:
        """Whether the drafter was given the prompt; it is given now if the controller finds it worth its price."""
        if guard.begun:
            return True
        if not self._controller.may_open(guard.name, guard.prompt_tokens):
            return False
        started = self._clock()
        guard.begin()
        draft.waited += self._clock() - started
        draft.contended = True
        return True

    def _learn_timings(self, guard: Guard) -> None:
        for timing in guard.take_timings():
            if timing.k is not None:
                self._controller.observe_drafting(guard.name, timing.k, timing.seconds)
            elif not guard.elsewhere:
                self._controller.observe_opening(guard.name, guard.prompt_tokens, timing.seconds)
