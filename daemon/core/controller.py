"""How many tokens to speculate, whose, and whether to at all.

Everything is measured here, on this machine, while it runs:

- `costs.CostModel`, one per loaded model: seconds per forward by width and context length, what drafts take, and how
  often they are right. What one request taught, the next one uses.
- `Controller`, one per request: picks the drafter and the width with the most expected tokens per second and keeps an
  account, `gain = committed tokens x plain step time - time spent`. A round is only run, and a drafter only waited
  for, if the account stays above a small debt even when nothing of the proposal is right; otherwise the request decodes
  plainly and tries again later, at growing distances.

The clock is the caller's, so that tests can run on a fake one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.core.acceptance import confidences
from pilotfish.daemon.core.company import ALONE
from pilotfish.daemon.core.costs import CostModel, Round
from pilotfish.hooks.types import Proposal

MARGIN = 1.05  # a round must promise this much more than a plain step to be worth it
MAX_LOSS = 0.01  # of the plain time so far may be spent on trying, unless the config says otherwise
GRACE = 2.0  # plain steps that may be spent on trying on top of that
FIRST_PARK, LAST_PARK = 8, 256  # committed tokens to wait before trying again
PLAIN_SAMPLES = 2  # plain steps to time before the first round
PLAIN_REFRESH = 64  # rounds after which a plain step is timed again
UNKNOWN_SLOPE = 0.25  # plain steps that each further token is taken to cost before any width was tried
OPTIMISM = 0.8  # of the guess for a width never tried, so that it is tried: costs have steps
PATIENCE = 2.0  # times what a proposal should take: how long it is waited for


@dataclass(frozen=True, slots=True)
class Choice:
    """Verify the first `k` tokens of a proposal: expected committed tokens per second, `rate`."""

    k: int
    rate: float


@dataclass(frozen=True, slots=True)
class WaitBudget:
    """Ask a drafter on its own thread for `k` tokens, and wait at most `patience` seconds.

    `from_the_start`: also while it is still reading the prompt.
    """

    k: int
    patience: float
    from_the_start: bool = False


class Controller:
    """One request's plan and account. `gain` is the seconds saved so far, negative when trying cost time.

    `company` is set before each round, by whoever has several requests take theirs together.
    """

    insists = False  # on the length of its choice, whatever others would make of the time

    def __init__(self, costs: CostModel, *, max_width: int, max_loss: float = MAX_LOSS) -> None:
        self._costs = costs
        self._max_loss = max_loss
        self._widths = tuple(w for w in costs.widths if 1 < w <= max_width)
        self._plain_width = costs.widths[0]
        self._plain_step = 0.0  # seconds, at the context length of the last round
        self._plain_total = 0.0  # seconds that plain decoding would have taken so far
        self._since_plain = 0  # rounds
        self._asked = False  # whether the last plan asked the drafters
        self._parked = 0  # committed tokens until the next try
        self._park_for = FIRST_PARK
        self.gain = 0.0
        self.company = ALONE

    @property
    def parked(self) -> bool:
        """Whether the drafters rest because they did not pay."""
        return self._parked > 0

    def plan(self, position: int, room: int) -> int:
        """How many tokens to ask the drafters for: 0 means a plain step. `room` is the most that is of use."""
        unmeasured = self._costs.samples(self._plain_width, position, self._sharing(self._plain_width)) < PLAIN_SAMPLES
        rests = unmeasured or self._parked > 0 or self._since_plain >= PLAIN_REFRESH
        self._asked = bool(self._widths) and not rests and room > 0 and self.affords(self._costs.drafting)
        return min(room, self._widths[-1] - 1) if self._asked else 0

    def plain(self, position: int) -> Choice:
        """What a proposal must beat."""
        plain = self.plain_step(position)
        return Choice(0, MARGIN / (plain + self._costs.per_token) if plain else 0.0)

    def best_length(self, proposal: Proposal, drafter: str, position: int, waited: float = 0.0) -> Choice:
        """How many of the proposed tokens to verify: the number with the most expected tokens per second.

        `waited` are the seconds that were spent waiting for it, which the account still has to pay.
        """
        best = self.plain(position)
        plain = self.plain_step(position)
        if not proposal or plain is None:
            return best
        expected = self.expected(proposal, drafter)
        per_token = self._costs.per_token
        for width in self._widths:
            k = min(width - 1, len(proposal))
            cost, known = self._forward(width, position, plain)
            if not self.affords(self._costs.drafting + waited + cost - plain):  # the loss if nothing is right
                continue
            rate = expected[k] / (cost * (1.0 if known else OPTIMISM) + expected[k] * per_token)
            if rate > best.rate:
                best = Choice(k, rate)
            if k == len(proposal):
                break
        return best

    def choose(self, proposal: Proposal, drafter: str, position: int) -> int:
        """`best_length`, without the rate."""
        return self.best_length(proposal, drafter, position).k

    def wait_budget(self, drafter: str, position: int, k: int, best: Choice, waited: float = 0.0) -> WaitBudget | None:
        """Whether to wait for a drafter on its own thread: it must promise more than `best`, and be affordable.

        Of a drafter that was never asked the price is unknown: it is waited for as long as the account can pay.
        `waited` are seconds already spent in this round on others. All requests of the turn wait with this one.
        """
        plain, waiting = self.plain_step(position), self.company.requests
        if plain is None:
            return None
        found: WaitBudget | None = None
        reach, expected, rate = 1.0, 1.0, best.rate
        for ask in range(1, k + 1):
            reach *= self._costs.acceptance.expected(drafter, ask - 1)
            expected += reach
            if ask + 1 not in self._widths:
                continue
            draft = self._costs.drafts.seconds(drafter, ask)
            cost = self._forward(ask + 1, position, plain)[0]
            slack = self._slack - self._costs.drafting - waited - (cost - plain)
            slack /= waiting
            promise = expected / (waiting * (draft or 0.0) + cost + expected * self._costs.per_token)
            if promise > rate and slack > (plain if draft is None else draft):
                patience = slack if draft is None else min(slack, PATIENCE * draft)
                rate, found = promise, WaitBudget(ask, patience)
        return found

    def may_open(self, drafter: str, prompt_tokens: int) -> bool:
        """Whether a drafter that computes on this machine may start on a prompt; see `DraftCosts.worth_opening`."""
        return self._costs.drafts.worth_opening(drafter, prompt_tokens, self._max_loss * self._costs.plain_total)

    def observe_round(self, round: Round) -> None:
        """Learn from a round and settle the account."""
        self._costs.observe_round(round)
        if self._asked:
            self._costs.observe_drafting(round.draft_seconds - round.waited)
        self._plain_step = (self.plain_step(round.position) or 0.0) + self._costs.per_token
        plain = round.committed * self._plain_step
        self._plain_total += plain
        self._costs.plain_total += plain
        self._parked = max(0, self._parked - round.committed)
        if round.proposal:
            self._since_plain += 1
            self._costs.drafts.won(round.drafter, plain - round.seconds)
            self._settle(plain - round.seconds)
        else:
            self._since_plain = 0
            self._settle(plain - round.seconds if round.contended else -round.draft_seconds)

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
        last = self._costs.recent[-1] if self._costs.recent else None
        position = last.position + last.committed if last else 0
        return {
            "position": position,
            "gain": self.gain,
            "plain_step": self._plain_step,
            "plain_total": self._plain_total,
            "allowed_loss": self._allowed,
            "parked": self._parked,
            "park_for": self._park_for,
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

    def _settle(self, won: float) -> None:
        self.gain += won
        if won > 0:
            self._park_for = FIRST_PARK
        elif not self.affords(0.0):
            self._parked = self._park_for
            self._park_for = min(2 * self._park_for, LAST_PARK)

    @property
    def _allowed(self) -> float:
        return self._max_loss * self._plain_total + GRACE * self._plain_step

    @property
    def _slack(self) -> float:
        """Seconds that may be lost now."""
        return self.gain + self._allowed

    def affords(self, seconds: float) -> bool:
        """Whether so many seconds may be lost now."""
        return self._slack >= seconds

    def plain_step(self, position: int) -> float | None:
        """Seconds of a plain step, or of this request's share of one; None before one was timed."""
        requests = self._sharing(self._plain_width)
        cost = self._costs.cost(self._plain_width, position, requests)
        return cost if cost is None or requests == 1 else cost / requests

    def _sharing(self, width: int) -> int:
        """How many requests share a forward if each has `width` tokens in it."""
        company = self.company
        return 1 if company.requests == 1 else max(1, min(company.requests, company.together(width)))

    def _forward(self, width: int, position: int, plain: float) -> tuple[float, bool]:
        """What a forward costs, or this request's share of one, and whether that is known."""
        if (requests := self._sharing(width)) > 1:
            known = self._costs.cost(width, position, requests)
            guess = self._costs.shared(requests, width, position, self._sharing(self._plain_width))
            return (guess or 0.0) / requests, known is not None
        known = self._costs.cost(width, position)
        return (self._guess(width, position, plain), False) if known is None else (known, True)

    def _guess(self, width: int, position: int, plain: float) -> float:
        """The cost of a width never tried, on the line through the plain step and the nearest narrower known one."""
        slope = UNKNOWN_SLOPE * plain
        for known in self._widths:
            if known < width and (cost := self._costs.cost(known, position)) is not None:
                slope = (cost - plain) / (known - self._plain_width)
        return plain + slope * (width - self._plain_width)

    def expected(self, proposal: Proposal, drafter: str) -> list[float]:
        """Expected committed tokens when the first k proposed ones are verified, for k = 0, 1, ..."""
        expected, path = [1.0], 1.0
        for draft_position, confidence in enumerate(confidences(proposal)):
            path *= self._costs.acceptance.estimate(drafter, confidence, draft_position)
            expected.append(expected[-1] + path)
        return expected


class Eager(Controller):
    """Verifies every proposal in full, paying or not: for parity runs and ceilings, never for users."""

    insists = True
    patience = 60.0  # seconds that a drafter on its own thread is waited for

    def plan(self, position: int, room: int) -> int:
        return max(0, min(room, self._widths[-1] - 1)) if self._widths else 0

    def plain(self, position: int) -> Choice:
        return Choice(0, 0.0)

    def best_length(self, proposal: Proposal, drafter: str, position: int, waited: float = 0.0) -> Choice:
        return Choice(len(proposal), float(len(proposal)))

    def wait_budget(self, drafter: str, position: int, k: int, best: Choice, waited: float = 0.0) -> WaitBudget | None:
        return WaitBudget(k, self.patience, from_the_start=True) if best.k == 0 else None

    def may_open(self, drafter: str, prompt_tokens: int) -> bool:
        return True
