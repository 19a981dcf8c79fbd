"""A turn for each of several requests: a prompt block, or a round that shares its forward where the engine can.

Rounds share a forward if they have as many tokens in it (`VerifiesTogether`). So those who verify nothing go together,
and those who verify a proposal, cut or padded to one length. What is worth verifying is settled for all of them at
once: tokens of one request are worth those of another, and a draft has to earn more of them than the time it takes
would give the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pilotfish.daemon.core.answering import Answering
from pilotfish.daemon.core.company import ALONE, Company
from pilotfish.daemon.core.controller import MARGIN
from pilotfish.daemon.core.coordinator import SharedForward
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.loss_account import Stake, afford_together
from pilotfish.daemon.core.proposing import Draft
from pilotfish.hooks.protocols import Rows, TargetEngine, VerifiesTogether

Clock = Callable[[], float]


class Turns:
    """Gives the requests of one loaded model theirs. `clock` is in seconds."""

    def __init__(self, engine: TargetEngine, costs: CostModel, clock: Clock = time.perf_counter) -> None:
        self._shared: _SharedRounds | None = None
        if isinstance(engine, VerifiesTogether) and engine.together(engine.lane.widths[0]) > 1:
            self._shared = _SharedRounds(engine, costs, clock)

    def take(self, answerings: Sequence[Answering]) -> None:
        """One for each. What one of them raises is its own."""
        rounds = []
        for answering in answerings:
            if answering.reading:
                answering.turn()
            else:
                rounds.append(answering)
        if len(rounds) > 1 and self._shared is not None:
            self._shared.take(rounds)
            return
        company = Company(len(rounds)) if len(rounds) > 1 else ALONE
        for answering in rounds:
            answering.controller.company = company
            answering.turn()


@dataclass(slots=True, eq=False)
class _Wish:
    """What one request wants to have verified. `expected[k]` tokens come of verifying the first k of them."""

    answering: Answering
    draft: Draft
    expected: list[float] = field(default_factory=lambda: [1.0])

    def worth(self, width: int) -> float:
        """Expected tokens of a forward of that width."""
        return self.expected[min(width, len(self.expected)) - 1]


class _SharedRounds:
    """The rounds of one turn."""

    def __init__(self, engine: VerifiesTogether, costs: CostModel, clock: Clock) -> None:
        self._engine, self._lane, self._costs, self._clock = engine, engine.lane, costs, clock

    def take(self, answerings: Sequence[Answering]) -> None:
        company = Company(len(answerings), self._engine.together)
        drafts = [(answering, answering.propose(company)) for answering in answerings]
        wishes = [_wish(answering, draft) for answering, draft in drafts if draft is not None]
        if not any(wish.answering.controller.insists for wish in wishes):
            self._settle(wishes)
        for width, group in self._groups(wishes):
            self._forward(width, group)

    def _settle(self, wishes: Sequence[_Wish]) -> None:
        """Cut the proposals to what promises the most tokens per second of all requests together."""
        drafting = [wish for wish in wishes if wish.draft.proposal]
        if not drafting:
            return
        chosen, width = self._best(wishes, drafting)
        for wish in drafting:
            wish.draft.cut(width - 1 if wish in chosen else 0)

    def _best(self, wishes: Sequence[_Wish], drafting: Sequence[_Wish]) -> tuple[Sequence[_Wish], int]:
        """Who verifies forwards of which width, while the others take plain steps."""
        running, position = len(wishes), max(wish.draft.position for wish in wishes)
        narrowest, per_token = self._lane.widths[0], self._costs.per_token
        plain = self._seconds(running, narrowest, position, running)
        best: tuple[float, Sequence[_Wish], int] = (
            (1 + MARGIN) * running / (plain + running * per_token),
            (),
            narrowest,
        )
        stakes, of_model = self._stakes(wishes, drafting)
        for width in self._worth_trying(drafting):
            ranked = sorted(drafting, key=lambda wish: wish.worth(width), reverse=True)
            for count in range(1, len(ranked) + 1):
                seconds = self._seconds(count, width, position, running)
                loss = seconds / count - plain / running
                staked, known = [stakes[wish] for wish in ranked[:count]], self._known(count, width, position)
                if not afford_together(staked, loss, of_model, known=known):
                    break
                tokens = sum(wish.worth(width) for wish in ranked[:count]) + running - count
                seconds += self._seconds(running - count, narrowest, position, running)
                if (rate := tokens / (seconds + tokens * per_token)) > best[0]:
                    best = rate, ranked[:count], width
        return best[1], best[2]

    def _stakes(self, wishes: Sequence[_Wish], drafting: Sequence[_Wish]) -> tuple[dict[_Wish, Stake], float]:
        """What each that drafts may lose in this turn, and what the model may for all of them."""
        accounts = {wish: wish.answering.controller.account for wish in drafting}
        stakes = {wish: Stake.of(accounts[wish], self._costs.drafting, wish.draft.waited) for wish in drafting}
        of_model = max(0.0, min(account.of_model for account in accounts.values()))
        return stakes, of_model - sum(wish.draft.waited for wish in wishes)

    def _worth_trying(self, drafting: Sequence[_Wish]) -> list[int]:
        """Widths that several may share, and those of the proposals as they are: a lane may have dozens."""
        own = {self._lane.pad(1 + len(wish.draft.proposal)) for wish in drafting}
        widest = max(own)
        return [w for w in self._lane.widths[1:] if w in own or (w < widest and self._engine.together(w) > 1)]

    def _seconds(self, requests: int, width: int, position: int, running: int) -> float:
        """What the forwards of `requests` take that have `width` tokens each."""
        most, seconds = self._engine.together(width), 0.0
        while requests > 0:
            seconds += self._costs.shared(min(most, requests), width, position, running) or 0.0
            requests -= most
        return seconds

    def _known(self, requests: int, width: int, position: int) -> bool:
        """Whether a forward of as many of them as may share one was timed, so that `_seconds` is no guess."""
        together = min(requests, self._engine.together(width))
        return self._costs.cost(width, position, together) is not None

    def _groups(self, wishes: Sequence[_Wish]) -> Iterator[tuple[int, Sequence[_Wish]]]:
        """The wishes by width, in the order of their slots, as many together as may be."""
        by_width: dict[int, list[_Wish]] = {}
        for wish in sorted(wishes, key=lambda wish: wish.answering.slot):
            width = self._lane.pad(1 + len(wish.draft.proposal))
            if width > wish.answering.room or not self._compared(wish.draft.position, width):
                yield width, [wish]  # where the context ends the session knows what fits
            else:
                by_width.setdefault(width, []).append(wish)
        for width, group in by_width.items():
            most = self._engine.together(width)
            yield from ((width, group[at : at + most]) for at in range(0, len(group), most))

    def _compared(self, position: int, width: int) -> bool:
        """Whether the lane holds for these cells; beyond, only a request's own plain steps are what they are."""
        limit = self._lane.max_context
        return limit is None or position - 1 + width <= limit

    def _forward(self, width: int, group: Sequence[_Wish]) -> None:
        began = self._clock()
        try:
            found = self._verify(group)
        except BaseException as error:
            for wish in group:
                wish.answering.fail(error)
            return
        shared = SharedForward(len(group), width, self._clock() - began)
        if len(group) > 1 and not any(wish.draft.contended for wish in group):
            position = max(wish.draft.position for wish in group)
            self._costs.observe_forward(width, position, len(group), shared.seconds)
        for wish, rows in zip(group, found, strict=True):
            wish.answering.take(rows, wish.draft, shared)

    def _verify(self, group: Sequence[_Wish]) -> Sequence[Rows]:
        if len(group) == 1:
            return [group[0].answering.target.verify(group[0].draft.proposal.tokens)]
        return self._engine.verify_together([(wish.answering.target, wish.draft.proposal.tokens) for wish in group])


def _wish(answering: Answering, draft: Draft) -> _Wish:
    if draft.guard is None:
        return _Wish(answering, draft)
    return _Wish(answering, draft, answering.controller.expected(draft.proposal, draft.guard.name))
