"""How many tokens to speculate, whose, and whether to at all.

Everything is measured here, on this machine, while it runs:

- `costs.CostModel`, one per loaded model: seconds per forward by width and context length, what drafts take, and how
  often they are right. What one request taught, the next one uses.
- `Controller`, one per request: picks the drafter and the width from which most is expected, as long as its account
  (`loss_account.LossAccount`) can pay for the worst that may come of it.

Drafters that cost microseconds are asked at every position, whether or not their tokens are verified: what they said is
compared with what was committed, so nothing has to be risked to learn what they are worth. Those that cost time rest
while the account is empty, and are tried again at growing distances. An empty account is no reason to stop looking: now
and then what those at hand say is followed without being verified, and what it would have won may be staked
(`forgone.Forgone`).

What a block is worth. With E tokens expected of a forward that takes c seconds longer than a plain step of p seconds,
`(E - 1) p - PRICE c - CAUTION c^2 / s` seconds, and it has to be more than MARGIN of a plain step. PRICE is above 1
because a token's time is not lost when a block is not run: a plain step makes the next match longer and surer, and most
of what the block promised can still be had. s is what the account can lose: the last of it is only staked at good odds.

Where the target cannot cut rejected tokens it takes the block back and forwards the right ones again
(`RestoresStates`). c then has what that takes, times how probable it is for each number of right ones, and a block must
be affordable at the worst of them. Copying the state before a block is part of what the forward was seen to take.

The clock is the caller's, so that tests can run on a fake one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.core.acceptance import confidences
from pilotfish.daemon.core.company import ALONE
from pilotfish.daemon.core.costs import OPTIMISM, CostModel, Option, Round
from pilotfish.daemon.core.going_back import GoingBack
from pilotfish.daemon.core.loss_account import MAX_LOSS, LossAccount
from pilotfish.daemon.core.measured_costs import STALL
from pilotfish.hooks.types import Proposal

MARGIN = 0.05  # plain steps that a block must promise to be worth it
PRICE = 1.5  # seconds that it must promise for each second that it takes longer than a plain step
CAUTION = 0.5  # more of them, when all that may be lost is at stake
CHEAP = 0.0075  # plain steps: drafters that take no longer are asked in every round
PLAIN_SAMPLES = 2  # plain steps to time before the first round
PLAIN_REFRESH = 64  # rounds after which a plain step is timed again
LOOK = 8  # rounds between looks at what is proposed, at least, while the account cannot pay for asking
LOOKING = 0.001  # of the plain time: what looks may cost besides
PATIENCE = 2.0  # times what a proposal should take: how long it is waited for


@dataclass(frozen=True, slots=True)
class Choice:
    """Verify the first `k` tokens of a proposal, in a forward of `width`: it promises to save `worth` seconds.

    `cost` are the seconds that the forward was taken to cost then.
    """

    k: int
    worth: float
    width: int = 1
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitBudget:
    """Ask a drafter on its own thread for `k` tokens, and wait at most `patience` seconds.

    `from_the_start`: also while it is still reading the prompt.
    """

    k: int
    patience: float
    from_the_start: bool = False


class Controller:
    """One request's plan and account.

    `company` is set before each round, by whoever has several requests take theirs together.
    """

    insists = False  # on the length of its choice, whatever others would make of the time

    def __init__(self, costs: CostModel, *, max_width: int, max_loss: float = MAX_LOSS) -> None:
        self._costs = costs
        self.account = LossAccount(costs, max_loss)
        self._widths = tuple(w for w in costs.widths if 1 < w <= max_width)
        self._plain_width = costs.widths[0]
        self._since_plain = 0  # rounds
        self._asked = False  # whether the last plan asked the drafters
        self._since_look = LOOK  # rounds
        self._looking = False
        self.company = ALONE

    @property
    def gain(self) -> float:
        """Seconds saved so far; negative when trying cost time."""
        return self.account.gain

    @property
    def parked(self) -> bool:
        """Whether drafters that cost time rest because they did not pay."""
        return self.account.parked > 0

    @property
    def looking(self) -> bool:
        """Whether the last plan asked only those that cost next to nothing, to see what they are worth now."""
        return self._looking

    def plan(self, position: int, room: int) -> int:
        """How many tokens to ask the drafters for: 0 means a plain step. `room` is the most that is of use."""
        unmeasured = self._costs.samples(self._plain_width, position, self._sharing(self._plain_width)) < PLAIN_SAMPLES
        may_ask = bool(self._widths) and not unmeasured and self._since_plain < PLAIN_REFRESH and room > 0
        self._asked = may_ask and (not self.parked or self._cheap)
        if self._asked and not self.account.affords(self._costs.drafting):
            self._asked = False
            self._costs.doubt_drafting()
        self._looking = may_ask and not self._asked and self._looks()
        return min(room, self._widths[-1] - 1) if self._asked or self._looking else 0

    def _looks(self) -> bool:
        """Whether it is time for another look, at drafters that the account cannot pay for."""
        self._since_look += 1
        dear = self._costs.drafting > LOOKING * self._since_look * self.account.plain_step
        if self.account.forgone.following or self._since_look < LOOK or dear:
            return False
        self._since_look = 0
        return True

    def plain(self, position: int) -> Choice:
        """What a proposal must beat."""
        return Choice(0, MARGIN * (self.plain_step(position) or 0.0), self._plain_width)

    def best_length(
        self, proposal: Proposal, drafter: str, position: int, waited: float = 0.0, room: int | None = None
    ) -> Choice:
        """How many of the proposed tokens to verify, and how wide: what promises to save the most time.

        `waited` are the seconds that were spent waiting for it, which the account still has to pay. `room` is what
        `plan` said: no forward has more than that many tokens behind the pending one.
        """
        spent = self._costs.drafting + waited
        slack, unseen = self.account.slack - spent, self.account.own - spent
        return self._best_within(slack, unseen, proposal, drafter, position, room)

    def _best_within(
        self, slack: float, unseen: float, proposal: Proposal, drafter: str, position: int, room: int | None
    ) -> Choice:
        """`best_length`, with `slack` seconds that may be lost, or `unseen` in a forward whose cost is a guess."""
        best = self.plain(position)
        plain = self.plain_step(position)
        if not proposal or not plain:
            return best
        expected = self.expected(proposal, drafter)
        going_back = self._going_back(position, plain)
        for option in self._options(position, plain):
            if room is not None and option.width > 1 + room:
                break
            k = min(option.width - 1, len(proposal))
            again, worst = going_back.of(expected, k, option.width) if going_back else (0.0, 0.0)
            extra, most = option.cost - plain + worst, slack if option.known else unseen
            if extra <= most:  # the loss if nothing is right
                stake = CAUTION * extra * extra / most if extra > 0 else 0.0
                worth = (expected[k] - 1) * plain - PRICE * (option.price - plain + again) - stake
                if worth > best.worth:
                    best = Choice(k, worth, option.width, option.cost)
            if k == len(proposal):
                break
        return best

    def forgo(self, heard: Iterable[tuple[str, Proposal]], position: int, room: int) -> None:
        """Nothing was verified of these drafters' proposals: follow what would have been, if the account allowed it."""
        if self.account.forgone.following:
            return
        best = self.plain(position)
        tokens: tuple[int, ...] = ()
        for drafter, proposal in heard:
            choice = self._best_within(math.inf, -math.inf, proposal, drafter, position, room)
            if choice.worth > best.worth:
                best, tokens = choice, proposal.tokens[: choice.k]
        if tokens:
            self.account.forgone.follow(tokens, *self._wins(best, position))

    def _wins(self, choice: Choice, position: int) -> tuple[Sequence[float], float]:
        """What the block wins with 0, 1, ... right tokens, and what it can lose."""
        plain = self.plain_step(position) or 0.0
        again = self._costs.going_back_at(position)
        wins = [
            (1 + right) * plain - choice.cost - (again[right] if right + 1 < choice.width and again else 0.0)
            for right in range(choice.k + 1)
        ]
        most = plain - min(wins)  # and a plain step, for what asking takes
        if self.company.requests == 1:  # at the cost that was seen, a stall or not
            dearer = max(0.0, (self._costs.cost(choice.width, position) or 0.0) - choice.cost)
            wins = [win - dearer for win in wins]
        return wins, most

    def choose(self, proposal: Proposal, drafter: str, position: int) -> int:
        """`best_length`, the number alone."""
        return self.best_length(proposal, drafter, position).k

    def wait_budget(self, drafter: str, position: int, k: int, best: Choice, waited: float = 0.0) -> WaitBudget | None:
        """Whether to wait for a drafter on its own thread: it must promise more than `best`, and be affordable.

        Of a drafter that was never asked the price is unknown: it is waited for as long as the account can pay.
        `waited` are seconds already spent in this round on others. All requests of the turn wait with this one.
        """
        plain, waiting = self.plain_step(position), self.company.requests
        if not plain:
            return None
        found: WaitBudget | None = None
        reach, expected, worth, asked = 1.0, [1.0], best.worth, 0
        going_back = self._going_back(position, plain)
        for option in self._options(position, plain):
            ask = option.width - 1
            if ask > k:
                break
            for place in range(asked, ask):
                reach *= self._costs.acceptance.expected(drafter, place)
                expected.append(expected[-1] + reach)
            asked = ask
            draft = self._costs.drafts.seconds(drafter, ask)
            again, worst = going_back.of(expected, ask, option.width) if going_back else (0.0, 0.0)
            slack = (self.account.own - self._costs.drafting - waited - (option.cost - plain + worst)) / waiting
            promise = (expected[-1] - 1) * plain - PRICE * (option.price - plain + again + waiting * (draft or 0.0))
            if promise > worth and slack > (plain if draft is None else draft):
                patience = slack if draft is None else min(slack, PATIENCE * draft)
                worth, found = promise, WaitBudget(ask, patience)
        return found

    def _going_back(self, position: int, plain: float) -> GoingBack | None:
        """None where the target cuts."""
        return GoingBack(self._costs.going_back_at(position), plain) if self._costs.going_back is not None else None

    def may_open(self, drafter: str, prompt_tokens: int) -> bool:
        """Whether a drafter that computes on this machine may start on a prompt; see `DraftCosts.worth_opening`."""
        return self._costs.drafts.worth_opening(drafter, prompt_tokens, self.account.of_all)

    def observe_round(self, round: Round) -> None:
        """Learn from a round and settle the account."""
        drafting = self._drafting(round)
        self._costs.observe_round(round)
        if self._asked or self._looking:
            self._costs.observe_drafting(round.draft_seconds - round.waited)
        self.account.plain_step = (self.plain_step(round.position) or 0.0) + self._costs.per_token
        plain = self.account.decoded(round.committed)
        if round.proposal:
            self._since_plain += 1
            won = plain - drafting - self._decoding(round)
            self._costs.drafts.won(round.drafter, won)
        else:
            self._since_plain = 0
            won = plain - round.seconds if round.contended else -drafting
        self.account.settle(won)

    def _drafting(self, round: Round) -> float:
        """What asking the drafters is charged with. A stall in which somebody else had the processor is not theirs."""
        asking = round.draft_seconds - round.waited
        if known := self._costs.drafting:
            asking = min(asking, max(round.draft_processor, STALL * known))
        return asking + round.waited

    def _decoding(self, round: Round) -> float:
        """What the rest of a round with a proposal is charged with.

        By what such a forward usually takes, as plain steps are: single ones scatter, and where the machine is busy a
        lucky or unlucky one would decide about the next hundred tokens.
        """
        usual = self._costs.cost(round.width, round.position)
        if round.contended or round.beside or usual is None:
            return round.seconds - round.draft_seconds
        again = self._costs.again(round.committed, round.position) if round.again else 0.0
        return usual + again + round.committed * self._costs.per_token

    def observe_proposal(self, drafter: str, proposal: Proposal, accepted: int, checked: int) -> None:
        """Learn from a proposal that was not verified: `checked` of its tokens can be compared with what was committed
        at their draft positions, and the first `accepted` were right.
        """
        self._costs.acceptance.observe(drafter, proposal, accepted, checked)

    def observe_drafting(self, drafter: str, k: int, seconds: float) -> None:
        """A drafter's thread took so long for a proposal of up to `k` tokens."""
        self._costs.drafts.observe(drafter, k, seconds)

    def observe_opening(self, drafter: str, prompt_tokens: int, seconds: float) -> None:
        """A drafter's thread took so long to start on the prompt, on this machine."""
        self._costs.drafts.opened(drafter, prompt_tokens, seconds)

    def describe(self) -> dict[str, Any]:
        """The request's account and what would be chosen now, JSON-ready; may be called from any thread.

        Times are seconds. `choice` says for each drafter and confidence how many of `proposed` tokens, all of that
        confidence, would be verified at `position`.
        """
        account, last = self.account, self._costs.recent[-1] if self._costs.recent else None
        position = last.position + last.committed if last else 0
        return {
            "position": position,
            "gain": account.gain,
            "plain_step": account.plain_step,
            "plain_total": account.plain_total,
            "allowed_loss": account.allowed,
            "credit": account.forgone.credit,
            "parked": account.parked,
            "park_for": account.park_for,
            "proposed": self._widths[-1] - 1 if self._widths else 0,
            "choice": self._describe_choice(position),
        }

    def _describe_choice(self, position: int) -> list[dict[str, Any]]:
        k = self._widths[-1] - 1 if self._widths else 0
        return [
            {"drafter": drafter, "confidence": confidence, "verify": self.choose(proposal, drafter, position)}
            for drafter in self._costs.acceptance.drafters
            for confidence in (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
            for proposal in (Proposal((0,) * k, (confidence,) * k),)
        ]

    @property
    def _cheap(self) -> bool:
        return self._costs.drafting <= CHEAP * self.account.plain_step

    def plain_step(self, position: int) -> float | None:
        """Seconds of a plain step, or of this request's share of one; None before one was timed."""
        requests = self._sharing(self._plain_width)
        cost = self._costs.cost(self._plain_width, position, requests)
        return cost if cost is None or requests == 1 else cost / requests

    def _sharing(self, width: int) -> int:
        """How many requests share a forward if each has `width` tokens in it."""
        company = self.company
        return 1 if company.requests == 1 else max(1, min(company.requests, company.together(width)))

    def _options(self, position: int, plain: float) -> Sequence[Option]:
        """The widths that are worth looking at, narrowest first; this request's share where others are in the forward.

        `plain` is what `plain_step` says.
        """
        widest = self._widths[-1] if self._widths else 0
        if self.company.requests == 1:
            return [option for option in self._costs.curve(position) if option.width <= widest]
        return [self._shared_option(width, position) for width in self._widths]

    def _shared_option(self, width: int, position: int) -> Option:
        requests = self._sharing(width)
        cost = self._costs.shared(requests, width, position, self._sharing(self._plain_width))
        share = (cost or 0.0) / requests
        known = self._costs.cost(width, position, requests) is not None
        return Option(width, share, share if known else OPTIMISM * share, known)

    def expected(self, proposal: Proposal, drafter: str) -> list[float]:
        """Expected committed tokens when the first k proposed ones are verified, for k = 0, 1, ..."""
        estimate = self._costs.acceptance.estimate
        expected, path = [1.0], 1.0
        for draft_position, confidence in enumerate(confidences(proposal)):
            path *= estimate(drafter, confidence, draft_position)
            expected.append(expected[-1] + path)
        return expected


class Eager(Controller):
    """Verifies every proposal in full, paying or not: for parity runs and ceilings, never for users."""

    insists = True
    patience = 60.0  # seconds that a drafter on its own thread is waited for

    def plan(self, position: int, room: int) -> int:
        return max(0, min(room, self._widths[-1] - 1)) if self._widths else 0

    def plain(self, position: int) -> Choice:
        return Choice(0, 0.0, self._plain_width)

    def best_length(
        self, proposal: Proposal, drafter: str, position: int, waited: float = 0.0, room: int | None = None
    ) -> Choice:
        return Choice(len(proposal), float(len(proposal)), 1 + len(proposal))

    def wait_budget(self, drafter: str, position: int, k: int, best: Choice, waited: float = 0.0) -> WaitBudget | None:
        return WaitBudget(k, self.patience, from_the_start=True) if best.k == 0 else None

    def may_open(self, drafter: str, prompt_tokens: int) -> bool:
        return True
