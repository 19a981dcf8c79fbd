"""What forwards, drafts and tokens cost, and how often drafts are right: what one loaded model's requests taught."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.core.acceptance import Acceptance
from pilotfish.daemon.core.draft_costs import DraftCosts
from pilotfish.daemon.core.measured_costs import STALL, MeasuredCosts
from pilotfish.hooks.types import Proposal, in_blocks

COST_SMOOTHING = 0.2
UNKNOWN_SHARE = 0.6  # plain shares that each further token is taken to cost, in a forward of several requests
DOUBT = 0.95  # of what asking the drafters took is left after a round in which that was too dear
RECENT = 64  # rounds that are kept for `describe`
OPTIMISM = 0.8  # of the guess for a width never tried, so that it is tried: costs have steps
UNKNOWN_SLOPE = 0.25  # plain steps that each further token is taken to cost before any width was tried
KEEP_CURVE = 16  # forwards that a curve is taken for what it was
FILLING = 2  # rows that a forward is filled up with, at most, where the wider one is cheaper
SURE = 3  # forwards of a width after which its cost is believed
FORGET = 1 / 64  # of what a width seemed dearer than expected, each forward, until then: it may have been a stall


@dataclass(frozen=True, slots=True)
class Option:
    """A forward of `width` tokens costs `cost` seconds, and counts for `price` where it competes with others.

    The two differ where the width was never tried: then both are guesses, and the price is a low one.
    """

    width: int
    cost: float
    price: float
    known: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did. Times are seconds; `width` is the forward's width in tokens, padding included."""

    position: int  # committed ids before the round
    width: int
    drafter: str
    proposal: Proposal  # what was verified
    accepted: int  # of the proposal
    committed: int
    draft_seconds: float
    verify_seconds: float  # its share, where other requests' rounds were in the same forward
    seconds: float  # the whole round
    waited: float = 0.0  # of draft_seconds, for a drafter on a thread of its own
    draft_processor: float = math.inf  # of draft_seconds, in which this thread had a processor; where that is known
    beside: int = 0  # other requests in the same forward
    contended: bool = False  # a drafter was busy on this machine meanwhile, so the times are no measure of the forward
    again: float = 0.0  # of seconds, in which the block was taken back and what was committed forwarded again


class CostModel:
    """What forwards cost and how often proposals are right, for one loaded model.

    `going_back` is the engine's, as `RestoresStates` has it; None for one that cuts what is rejected.
    """

    def __init__(self, widths: Sequence[int], going_back: float | None = None) -> None:
        self.widths, self.going_back = tuple(widths), going_back
        self._again = MeasuredCosts()  # (committed tokens, context bucket)
        self._cost = MeasuredCosts()  # (requests, width of each, context bucket)
        self._shape: dict[tuple[int, int], float] = {}  # (width, context bucket) -> plain steps, from a certificate
        self.acceptance = Acceptance()
        self.drafts = DraftCosts()
        self.per_token = 0.0  # seconds to pick, commit and deliver one token, whatever the width
        self.drafting = 0.0  # seconds that asking the drafters takes, waiting for slow ones apart
        self.plain_total = 0.0  # seconds that plain decoding would have taken, over all requests
        self.gain = 0.0  # seconds saved so far, over all requests; negative when trying cost more than it won
        self.forwards = 0  # that were timed
        self._last: dict[tuple[int, int], int] = {}  # (width, context bucket) -> the last one of them
        self._backs: dict[int, tuple[int, Sequence[float]]] = {}  # context bucket -> rounds it holds for, and it
        self._curves: dict[int, tuple[int, Sequence[Option]]] = {}  # context bucket -> forwards it holds for, and it
        self.recent: deque[Round] = deque(maxlen=RECENT)  # oldest first

    def cost(self, width: int, position: int, requests: int = 1) -> float | None:
        """Seconds of a forward of `width` tokens at `position`; None when nothing near was measured yet.

        Of several `requests` with that many tokens each where there are more; `position` is then the last one's.
        """
        bucket = _context_bucket(position)
        for near in (bucket, bucket - 1, bucket + 1):
            if (known := self._cost.seconds(requests, width, near)) is not None:
                return known
        if requests > 1 or width == self.widths[0]:
            return None
        plain, shape = self.cost(self.widths[0], position), self._shaped(width, bucket)
        return plain * shape if plain is not None and shape is not None else None

    def again(self, committed: int, position: int) -> float:
        """Seconds of a commit of so many tokens that takes its block back and forwards them again; 0 where it cuts.

        Before one was seen: what its forwards take, and what writing the state back was seen to.
        """
        if self.going_back is None:
            return 0.0
        if (known := self._again.seconds(committed, _context_bucket(position))) is not None:
            return known
        plain = self.cost(self.widths[0], position) or 0.0
        blocks = in_blocks(committed, self.widths)
        return self.going_back + sum(self.cost(width, position) or width * plain for width in blocks)

    def going_back_at(self, position: int) -> Sequence[float]:
        """`again` for 1, 2, ... tokens; empty where the target cuts. May be a few rounds old."""
        if self.going_back is None:
            return ()
        bucket = _context_bucket(position)
        left, known = self._backs.get(bucket, (0, ()))
        if left <= 0:
            left, known = KEEP_CURVE, [self.again(count, position) for count in range(1, self.widths[-1])]
        self._backs[bucket] = (left - 1, known)
        return known

    def curve(self, position: int) -> Sequence[Option]:
        """The widths worth running at `position`, narrowest first, but for the plain step; empty before that was timed.

        A width that costs no less than one a little wider is left out: kernels that work in groups of rows make 4
        tokens cheaper than 3. May be a few forwards old.
        """
        bucket = _context_bucket(position)
        left, options = self._curves.get(bucket, (0, ()))
        if left <= 0:
            left, options = KEEP_CURVE, self._worth_running(self._all_options(position), bucket)
        self._curves[bucket] = (left - 1, options)
        return options

    def _all_options(self, position: int) -> Sequence[Option]:
        """Every width; what was never tried costs what the line through its known neighbours says."""
        plain = self.cost(self.widths[0], position)
        if plain is None:
            return ()
        known = self._known(position, plain)
        measured = sorted(known)
        options: list[Option] = []
        for width in self.widths[1:]:
            if width in known:
                options.append(Option(width, known[width], known[width]))
                continue
            below, above = measured[bisect_left(measured, width) - 1], bisect_left(measured, width)
            if below == self.widths[0]:
                slope = UNKNOWN_SLOPE * plain
            else:
                slope = (known[below] - plain) / (below - self.widths[0])
            if above < len(measured):  # a stall may have met the wider one
                slope = min(slope, (known[measured[above]] - known[below]) / (measured[above] - below))
            guess = known[below] + slope * (width - below)
            options.append(Option(width, guess, OPTIMISM * guess, known=False))
        return options

    def _known(self, position: int, plain: float) -> dict[int, float]:
        """Seconds by width, of those that were measured or certified."""
        found = {self.widths[0]: plain}
        slope, narrower = UNKNOWN_SLOPE * plain, self.widths[0]
        for width in self.widths[1:]:
            if (seconds := self.cost(width, position)) is not None:
                expected = found[narrower] + slope * (width - narrower)
                found[width] = self._believed(width, position, seconds, expected)
                slope, narrower = (found[width] - plain) / (width - self.widths[0]), width
        return found

    def _worth_running(self, options: Sequence[Option], bucket: int) -> Sequence[Option]:
        if self.going_back is not None:  # a forward that is filled up is taken back, however right it was
            return options
        return [
            option
            for i, option in enumerate(options)
            if not self._sure(option.width, bucket)
            or not any(
                wider.price <= option.price
                and wider.width <= option.width + FILLING
                and self._sure(wider.width, bucket)
                for wider in options[i + 1 : i + 1 + FILLING]
            )
        ]

    def _sure(self, width: int, bucket: int) -> bool:
        """Whether what it costs was seen often enough, or is certified."""
        return self._cost.samples(1, width, bucket) >= SURE or self._shaped(width, bucket) is not None

    def _believed(self, width: int, position: int, known: float, expected: float) -> float:
        """What a forward is taken to cost that seemed to cost `known` and was `expected` to cost less."""
        bucket = _context_bucket(position)
        if known <= expected or self._cost.samples(1, width, bucket) not in range(1, SURE):
            return known
        left = (1 - FORGET) ** (self.forwards - self._last.get((width, bucket), 0))
        return expected + left * (known - expected)

    def shared(self, requests: int, width: int, position: int, running: int) -> float | None:
        """`cost`, or else a guess by the plain step of all that are `running`; None before that was measured."""
        if (known := self.cost(width, position, requests)) is not None:
            return known
        plain = self.cost(self.widths[0], position, running)
        if plain is None:
            return None
        return plain * (1 + UNKNOWN_SHARE * (requests * width / (running * self.widths[0]) - 1))

    def seed(self, costs: Iterable[tuple[int, int, float]]) -> None:
        """Take (width, position, seconds) that were measured together, in an earlier process or as the model loaded.

        Only their relation to the plain step is kept, because the machine may be busier or idler now: a width
        counts as known once plain steps were timed here, and what is measured here replaces it.
        """
        table = {(width, _context_bucket(position)): seconds for width, position, seconds in costs}
        for (width, bucket), seconds in table.items():
            if plain := table.get((self.widths[0], bucket)):
                self._shape[width, bucket] = seconds / plain

    def _shaped(self, width: int, bucket: int) -> float | None:
        """Plain steps that a forward of `width` costs, from the nearest seeded context; widths between by line."""
        buckets = sorted({b for _, b in self._shape}, key=lambda b: abs(b - bucket))
        for near in buckets[:1]:
            known = sorted((w, cost) for (w, b), cost in self._shape.items() if b == near)
            for (low, a), (high, b) in itertools.pairwise(known):
                if low <= width <= high:
                    return a + (b - a) * (width - low) / (high - low)
        return None

    def samples(self, width: int, position: int, requests: int = 1) -> int:
        """How many forwards of `width` were timed at about this context length, for so many requests."""
        return self._cost.samples(requests, width, _context_bucket(position))

    def observe_forward(self, width: int, position: int, requests: int, seconds: float) -> None:
        """A forward of `width` tokens of each of `requests`, the last of them at `position`, took so long."""
        bucket = _context_bucket(position)
        self.forwards += 1
        self._last[width, bucket] = self.forwards
        if not self._cost.samples(requests, width, bucket):
            self._curves.clear()
            if requests == 1 and (known := self.cost(width, position)):  # elsewhere, or from a certificate
                seconds = min(seconds, STALL * known)
        self._cost.observe(seconds, requests, width, bucket)

    def observe_round(self, round: Round) -> None:
        """Learn from a round."""
        self.recent.append(round)
        self.acceptance.observe(round.drafter, round.proposal, round.accepted, len(round.proposal))
        if round.contended:
            return
        if not round.beside:
            self.observe_forward(round.width, round.position, 1, round.verify_seconds)
        if round.again:
            self._again.observe(round.again, round.committed, _context_bucket(round.position))
            self._backs.clear()
        per_token = (round.seconds - round.draft_seconds - round.verify_seconds - round.again) / round.committed
        self.per_token += COST_SMOOTHING * (per_token - self.per_token)

    def observe_drafting(self, seconds: float) -> None:
        """Learn what asking the drafters took: dearer at once, but for a stall, and cheaper little by little."""
        if self.drafting:
            seconds = min(seconds, STALL * self.drafting)
        weight = 1.0 if seconds > self.drafting else COST_SMOOTHING
        self.drafting += weight * (seconds - self.drafting)

    def doubt_drafting(self) -> None:
        """Asking is too dear now: what is known of it may have been a stall, so it is believed less and less."""
        self.drafting *= DOUBT

    def describe(self) -> dict[str, Any]:
        """Everything known, JSON-ready; may be called from any thread. Times are seconds.

        `context` is a range of token counts, `confidence` one of a drafter's own estimates, `plain_steps` a cost
        relative to the plain step, of `requests` in one forward; `measured_here` is False for costs that a certificate
        or the load brought. `going_back` is None where rejected tokens are cut.
        """
        return {
            "per_token": self.per_token,
            "going_back": self.going_back,
            "costs": [*self._describe_costs(), *self._describe_shape()],
            "acceptance": self.acceptance.describe(),
            "positions": self.acceptance.describe_positions(),
            "drafts": self.drafts.describe(),
            "rounds": [_round_json(round) for round in list(self.recent)],
        }

    def _describe_costs(self) -> list[dict[str, Any]]:
        rows = []
        for (requests, width, bucket), seconds, samples in sorted(self._cost, key=lambda item: item[0][::-1]):
            plain = self._cost.seconds(1, self.widths[0], bucket)
            steps = seconds / plain if plain else None
            row = {"width": width, "context": _context_range(bucket), "plain_steps": steps, "measured_here": True}
            rows.append({**row, "requests": requests, "seconds": seconds, "samples": samples})
        return rows

    def _describe_shape(self) -> list[dict[str, Any]]:
        return [
            {"width": width, "context": _context_range(bucket), "plain_steps": steps, "measured_here": False}
            for (width, bucket), steps in sorted(self._shape.items(), key=lambda item: item[0][::-1])
            if not self._cost.samples(1, width, bucket)
        ]


def _context_bucket(position: int) -> int:
    return max(8, position.bit_length())  # up to 255 tokens are one bucket, then one per doubling


def _context_range(bucket: int) -> list[int]:
    return [0 if bucket == 8 else 1 << (bucket - 1), (1 << bucket) - 1]


def _round_json(round: Round) -> dict[str, Any]:
    table = {name: getattr(round, name) for name in Round.__slots__ if name not in ("proposal", "draft_processor")}
    return {**table, "proposed": len(round.proposal)}
