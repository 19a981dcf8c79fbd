"""What speculation has won and lost, and what it may still lose.

`gain = committed tokens x plain step time - time spent`, for one request, and for its model over all requests. A round
is only run, and a drafter only waited for, if both accounts stay above a small debt even when nothing of the proposal
is right: what one request lost is not there for the next to lose again, until it was made up. What blocks would have
won that the accounts could not pay for may be staked besides (`forgone.Forgone`), and such debts have a bound of their
own. While nothing can be lost, drafters that cost time are parked, and tried again at growing distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.forgone import Forgone

MAX_LOSS = 0.01  # of the plain time so far may be spent on trying, unless the config says otherwise
GRACE = 2.0  # plain steps that may be spent on trying on top of that
FIRST_PARK, LAST_PARK = 8, 256  # committed tokens to wait before trying again


class LossAccount:
    """One request's, beside its model's in `costs`, in seconds. `gain` is negative when trying cost time."""

    def __init__(self, costs: CostModel, max_loss: float) -> None:
        self._costs = costs
        self._max_loss = max_loss
        self.gain = 0.0
        self.plain_step = 0.0  # at the context length of the last round
        self.plain_total = 0.0  # that plain decoding would have taken so far
        self.parked = 0  # committed tokens until the next try
        self.park_for = FIRST_PARK
        self.forgone = Forgone()

    @property
    def allowed(self) -> float:
        """The debt that the request may have, before what was forgone."""
        return self._max_loss * self.plain_total + GRACE * self.plain_step

    @property
    def of_all(self) -> float:
        """The share of all the model's plain time that may be lost."""
        return self._max_loss * self._costs.plain_total

    @property
    def of_model(self) -> float:
        """What the model's account has left, for all requests together."""
        return self._costs.gain + self.of_all + GRACE * self.plain_step

    @property
    def own(self) -> float:
        """What both accounts have left."""
        return min(self.gain + self.allowed, self.of_model)

    @property
    def slack(self) -> float:
        """What may be lost now, with what was forgone."""
        own, credit = self.own, self.forgone.credit
        if credit <= 0:
            return own
        left = own + self._max_loss * self.plain_total + self.forgone.most
        return max(own, min(max(own, 0.0) + credit, left))

    def affords(self, seconds: float, *, known: bool = True) -> bool:
        """Whether so much may be lost now, in a forward whose cost is `known`, or a guess."""
        return (self.slack if known else self.own) >= seconds

    def committed(self, tokens: Sequence[int], *, verified: bool) -> None:
        """What a round committed, before it is settled; `verified` where a proposal was."""
        if verified:
            self.forgone.let_go()  # the block that was verified wins what the other would have
        else:
            self.forgone.committed(tokens)
        if self.forgone.credit > 0:
            self.parked, self.park_for = 0, FIRST_PARK

    def decoded(self, tokens: int) -> float:
        """So many tokens came; what plain decoding would have taken for them."""
        plain = tokens * self.plain_step
        self.plain_total += plain
        self._costs.plain_total += plain
        self.parked = max(0, self.parked - tokens)
        return plain

    def settle(self, won: float) -> None:
        """A round won so much, or lost it."""
        self.gain += won
        self._costs.gain += won
        if won < 0:
            self.forgone.spend(-won)
        if won > 0:
            self.park_for = FIRST_PARK
        elif not self.affords(0.0):
            self.parked = self.park_for
            self.park_for = min(2 * self.park_for, LAST_PARK)


@dataclass(frozen=True, slots=True)
class Stake:
    """What a request may lose in one turn, in seconds, besides what it spent on `asking`: in forwards whose cost is
    known, and in others. `credit` is what it was forgone, which is its own."""

    known: float
    guessed: float
    credit: float
    asking: float

    @classmethod
    def of(cls, account: LossAccount, asking: float, waited: float) -> Stake:
        """After so many seconds of asking drafters, and of waiting for them."""
        spent = asking + waited
        return cls(account.slack - spent, account.own - spent, account.forgone.credit, asking)

    def beyond(self, seconds: float, *, known: bool) -> float:
        """What losing so much takes from the model's account."""
        return max(0.0, self.asking + seconds - (self.credit if known else 0.0))


def afford_together(stakes: Sequence[Stake], seconds: float, of_model: float, *, known: bool) -> bool:
    """Whether requests of one model may each lose so much in the same turn, in forwards whose cost is `known`.

    `of_model` is what its account has left: it is there once, for all of them.
    """
    if not all(seconds <= (stake.known if known else stake.guessed) for stake in stakes):
        return False
    return sum(stake.beyond(seconds, known=known) for stake in stakes) <= of_model
