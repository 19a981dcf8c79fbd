"""What the rounds of one answer took, apart: drafting, bridging, verification, transport, overhead.

The coordinator times a round, a controller hears of it, and bridges are timed where they are called. A drafter on a
thread says what its own work took; what waiting for it took beyond that is transport. For one in another process or
on another machine its own work contains the way there and back, which it does not tell apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.daemon.config.types import MAX_WIDTH
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.costs import CostModel, Round
from pilotfish.daemon.core.generation import OutputToken
from pilotfish.daemon.lab.receipts.receipt_types import Arrival, RoundRecord, RoundTimes
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import Bridge, CountsDrafterIds, Vocabulary
from pilotfish.hooks.types import Proposal

Clock = Callable[[], float]


class RoundWatch:
    """Of one answer at a time: `begin`, then what it heard is in `rounds` and `arrivals`."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock
        self.rounds: list[RoundRecord] = []
        self.arrivals: list[Arrival] = []
        self._length: int | None = None
        self._threaded = False
        self._bridging = self._drafting = self._started = 0.0
        self._heard: Round | None = None

    def begin(self, length: int | None, *, threaded: bool) -> None:
        """An answer begins: `length` is the longest proposal, None where the controller chooses."""
        self.rounds, self.arrivals = [], []
        self._length, self._threaded = length, threaded
        self._bridging = self._drafting = 0.0
        self._heard = None
        self._started = self.clock()

    def controller(self, costs: CostModel, *, max_width: int, max_loss: float) -> Controller:
        """A request's controller, for `Generator`. The lane alone limits a length that was asked for."""
        if self._length is None:
            return WatchedController(costs, max_width=max_width, max_loss=max_loss).watched_by(self)
        return FixedLength(costs, max_width=MAX_WIDTH, max_loss=max_loss).of(self._length).watched_by(self)

    def hear_round(self, round: Round) -> None:
        """The coordinator committed a round; its ids come next."""
        self._heard = round

    def hear_tokens(self, tokens: Sequence[OutputToken]) -> None:
        """Ids arrived at the client, those of one round together."""
        ids = tuple(token.token for token in tokens)
        self.arrivals.append(Arrival(self.clock() - self._started, len(ids)))
        if (round := self._heard) is None:
            return
        self._heard = None
        self.rounds.append(
            RoundRecord(
                position=round.position,
                width=round.width,
                drafter=round.drafter,
                n_proposed=len(round.proposal),
                accepted=round.accepted,
                n_committed=len(ids),
                times=self._times(round),
                proposed=round.proposal.tokens,
                committed=ids,
            )
        )

    def bridged(self, seconds: float) -> None:
        """A bridge took so long, on any thread."""
        self._bridging += seconds

    def drafted(self, seconds: float) -> None:
        """A drafter on a thread took so long, its bridge included."""
        self._drafting += seconds

    def _times(self, round: Round) -> RoundTimes:
        """Split what the round took; the parts sum up to `total`."""
        bridging, worked = self._bridging, self._drafting
        self._bridging = self._drafting = 0.0
        transport = max(0.0, round.waited - worked) if self._threaded else 0.0
        asking = round.draft_seconds - transport
        within = min(bridging, asking)  # the rest of it ran while the round was committed
        overhead = max(0.0, round.seconds - round.draft_seconds - round.verify_seconds - (bridging - within))
        return RoundTimes(
            drafting=asking - within,
            bridging=bridging,
            verification=round.verify_seconds,
            transport=transport if self._threaded else None,
            overhead=overhead,
            total=round.seconds,
        )


class WatchedController(Controller):
    """Plans as people's requests are planned, and tells a watch of every round."""

    _watch: RoundWatch

    def watched_by(self, watch: RoundWatch) -> WatchedController:
        """This controller, which from now on tells `watch`."""
        self._watch = watch
        return self

    def observe_round(self, round: Round) -> None:
        super().observe_round(round)
        self._watch.hear_round(round)

    def observe_drafting(self, drafter: str, k: int, seconds: float) -> None:
        super().observe_drafting(drafter, k, seconds)
        self._watch.drafted(seconds)


class FixedLength(WatchedController, Eager):
    """Asks for proposals of one length and verifies all of them, paying or not."""

    _length = 1

    def of(self, length: int) -> FixedLength:
        """This controller, for proposals of `length` ids."""
        self._length = length
        return self

    def plan(self, position: int, room: int) -> int:
        return min(super().plan(position, room), self._length)


class TimedRegistry(Registry):
    """A registry whose bridges tell a watch what they take."""

    watch: RoundWatch | None = None

    def bridge(self, drafter: Vocabulary, target: Vocabulary) -> tuple[str, Bridge] | None:
        found = super().bridge(drafter, target)
        if found is None or self.watch is None:
            return found
        name, bridge = found
        kind = CountingTimedBridge if isinstance(bridge, CountsDrafterIds) else TimedBridge
        return name, kind(bridge, self.watch)


class TimedBridge:
    """A bridge, and what its translations take."""

    def __init__(self, bridge: Any, watch: RoundWatch) -> None:
        self.bridge = bridge
        self._watch = watch

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        started = time.perf_counter()
        try:
            found: Sequence[int] = self.bridge.to_drafter(target_ids)
            return found
        finally:
            self._watch.bridged(time.perf_counter() - started)

    def to_target(self, proposal: Proposal) -> Proposal:
        started = time.perf_counter()
        try:
            found: Proposal = self.bridge.to_target(proposal)
            return found
        finally:
            self._watch.bridged(time.perf_counter() - started)


class CountingTimedBridge(TimedBridge):
    """One between vocabularies that cut text into pieces of different lengths."""

    def drafter_ids(self, k: int) -> int:
        return int(self.bridge.drafter_ids(k))
