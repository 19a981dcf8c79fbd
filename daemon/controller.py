"""How many tokens to speculate, and whether to at all.

Everything is measured here, on this machine, while it runs:

- `CostModel`, one per loaded model: seconds per forward by width and context length, and how often a proposed
  token was right, by drafter and by the drafter's own confidence. What one request taught, the next one uses.
- `Controller`, one per request: picks the width with the most expected tokens per second and keeps an account,
  `gain = committed tokens x plain step time - time spent`. A round is only run if the account stays above a small debt
  even when nothing of its proposal is right; otherwise the request decodes plainly and tries again later, at growing
  distances.

The clock is the caller's, so that tests can run on a fake one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.hooks.types import Proposal

MARGIN = 1.03  # a round must promise this much more than a plain step to be worth it
MAX_LOSS = 0.01  # of the plain time so far may be spent on trying, unless the config says otherwise
GRACE = 4.0  # plain steps that may be spent on trying on top of that
PRIOR_WEIGHT = 2.0  # sightings that a drafter's own confidence is worth
MEMORY = 128.0  # sightings after which old ones start to fade
BUCKETS = 10  # of confidence
UNKNOWN_CONFIDENCE = 0.5
COST_SMOOTHING = 0.2
STALL = 3.0  # times the known cost: a stalled machine, not a dearer forward
FIRST_PARK, LAST_PARK = 8, 256  # committed tokens to wait before trying again
PLAIN_SAMPLES = 2  # plain steps to time before the first round
PLAIN_REFRESH = 64  # rounds after which a plain step is timed again
UNKNOWN_SLOPE = 0.25  # plain steps that each further token is taken to cost before any width was tried
RECENT = 64  # rounds that are kept for `describe`
OPTIMISM = 0.8  # of the guess for a width never tried, so that it is tried: costs have steps


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
    verify_seconds: float
    seconds: float  # the whole round


class CostModel:
    """What forwards cost and how often proposals are right, for one loaded model."""

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)
        self._cost: dict[tuple[int, int], tuple[float, int]] = {}  # (width, context bucket) -> seconds, samples
        self._shape: dict[tuple[int, int], float] = {}  # (width, context bucket) -> plain steps, from a certificate
        self._right: dict[tuple[str, int], tuple[float, float]] = {}  # (drafter, bucket) -> right, seen
        self.per_token = 0.0  # seconds to pick, commit and deliver one token, whatever the width
        self.drafting = 0.0  # seconds that asking the drafters takes
        self.recent: deque[Round] = deque(maxlen=RECENT)  # oldest first

    def cost(self, width: int, position: int) -> float | None:
        """Seconds of a forward of `width` at `position`; None when nothing near was measured yet."""
        bucket = _context_bucket(position)
        for near in (bucket, bucket - 1, bucket + 1):
            if known := self._cost.get((width, near)):
                return known[0]
        plain = self.cost(self.widths[0], position) if width != self.widths[0] else None
        shape = self._shaped(width, bucket)
        return plain * shape if plain is not None and shape is not None else None

    def seed(self, costs: Iterable[tuple[int, int, float]]) -> None:
        """Take (width, position, seconds) that were measured together, in an earlier process.

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

    def samples(self, width: int, position: int) -> int:
        """How many forwards of `width` were timed at about this context length."""
        return self._cost.get((width, _context_bucket(position)), (0.0, 0))[1]

    def acceptance(self, drafter: str, confidence: float) -> float:
        """Probability that a token proposed with `confidence` is right, given that all before it were."""
        right, seen = self._right.get((drafter, _confidence_bucket(confidence)), (0.0, 0.0))
        return (right + PRIOR_WEIGHT * confidence) / (seen + PRIOR_WEIGHT)

    def observe(self, round: Round) -> None:
        """Learn from a round."""
        self.recent.append(round)
        self._observe_cost(round.width, round.position, round.verify_seconds)
        per_token = (round.seconds - round.draft_seconds - round.verify_seconds) / round.committed
        self.per_token += COST_SMOOTHING * (per_token - self.per_token)
        for i, confidence in enumerate(_confidences(round.proposal)[: round.accepted + 1]):
            key = (round.drafter, _confidence_bucket(confidence))
            right, seen = self._right.get(key, (0.0, 0.0))
            fade = 1.0 if seen < MEMORY else 0.5
            self._right[key] = (fade * right + (i < round.accepted), fade * seen + 1)

    def observe_drafting(self, seconds: float) -> None:
        """Learn what asking the drafters took: dearer at once, cheaper little by little."""
        weight = 1.0 if seconds > self.drafting else COST_SMOOTHING
        self.drafting += weight * (seconds - self.drafting)

    def _observe_cost(self, width: int, position: int, seconds: float) -> None:
        key = (width, _context_bucket(position))
        known, samples = self._cost.get(key, (seconds, 0))
        seconds = min(seconds, STALL * known)
        weight = max(COST_SMOOTHING, 1 / (samples + 1))
        self._cost[key] = (known + weight * (seconds - known), samples + 1)

    def describe(self) -> dict[str, Any]:
        """Everything known, JSON-ready; may be called from any thread. Times are seconds.

        `context` is a range of token counts, `confidence` one of a drafter's own estimates, `plain_steps` a cost
        relative to the plain step; `measured_here` is False for costs that a certificate brought.
        """
        return {
            "per_token": self.per_token,
            "costs": [*self._describe_costs(), *self._describe_shape()],
            "acceptance": [
                {"drafter": drafter, "confidence": [b / BUCKETS, (b + 1) / BUCKETS], "rate": right / seen, "seen": seen}
                for (drafter, b), (right, seen) in sorted(self._right.items())
                if seen
            ],
            "rounds": [_round_json(round) for round in list(self.recent)],
        }

    def _describe_costs(self) -> list[dict[str, Any]]:
        known = dict(self._cost)
        rows = []
        for (width, bucket), (seconds, samples) in sorted(known.items(), key=lambda item: item[0][::-1]):
            plain = known.get((self.widths[0], bucket), (0.0, 0))[0]
            steps = seconds / plain if plain else None
            row = {"width": width, "context": _context_range(bucket), "plain_steps": steps, "measured_here": True}
            rows.append({**row, "seconds": seconds, "samples": samples})
        return rows

    def _describe_shape(self) -> list[dict[str, Any]]:
        return [
            {"width": width, "context": _context_range(bucket), "plain_steps": steps, "measured_here": False}
            for (width, bucket), steps in sorted(self._shape.items(), key=lambda item: item[0][::-1])
            if (width, bucket) not in self._cost
        ]


class Controller:
    """One request's plan and account. `gain` is the seconds saved so far, negative when trying cost time."""

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

    @property
    def parked(self) -> bool:
        """Whether the drafters rest because they did not pay."""
        return self._parked > 0

    def plan(self, position: int, room: int) -> int:
        """How many tokens to ask the drafters for: 0 means a plain step. `room` is the most that is of use."""
        unmeasured = self._costs.samples(self._plain_width, position) < PLAIN_SAMPLES
        rests = unmeasured or self._parked > 0 or self._since_plain >= PLAIN_REFRESH
        self._asked = bool(self._widths) and not rests and room > 0 and self._affordable(self._costs.drafting)
        return min(room, self._widths[-1] - 1) if self._asked else 0

    def choose(self, proposal: Proposal, drafter: str, position: int) -> int:
        """How many of the proposed tokens to verify: the number with the most expected tokens per second."""
        plain = self._costs.cost(self._plain_width, position)
        if not proposal or plain is None:
            return 0
        expected = self._expected(proposal, drafter)
        per_token = self._costs.per_token
        best, best_rate = 0, MARGIN / (plain + per_token)
        for width in self._widths:
            k = min(width - 1, len(proposal))
            known = self._costs.cost(width, position)
            cost = self._guess(width, position, plain) if known is None else known
            if not self._affordable(self._costs.drafting + cost - plain):  # the loss if nothing of it is right
                continue
            cost *= OPTIMISM if known is None else 1.0
            rate = expected[k] / (cost + expected[k] * per_token)
            if rate > best_rate:
                best, best_rate = k, rate
            if k == len(proposal):
                break
        return best

    def observe(self, round: Round) -> None:
        """Learn from a round and settle the account."""
        self._costs.observe(round)
        if self._asked:
            self._costs.observe_drafting(round.draft_seconds)
        self._plain_step = (self._costs.cost(self._plain_width, round.position) or 0.0) + self._costs.per_token
        self._plain_total += round.committed * self._plain_step
        self._parked = max(0, self._parked - round.committed)
        if round.proposal:
            self._since_plain += 1
            self._settle(round.committed * self._plain_step - round.seconds)
        else:
            self._since_plain = 0
            self._settle(-round.draft_seconds)

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
            "allowed_loss": self._max_loss * self._plain_total + GRACE * self._plain_step,
            "parked": self._parked,
            "park_for": self._park_for,
            "proposed": self._widths[-1] - 1 if self._widths else 0,
            "choice": self._describe_choice(position),
        }

    def _describe_choice(self, position: int) -> list[dict[str, Any]]:
        k = self._widths[-1] - 1 if self._widths else 0
        drafters = sorted({drafter for drafter, _ in list(self._costs._right)})
        return [
            {"drafter": drafter, "confidence": confidence, "verify": self.choose(proposal, drafter, position)}
            for drafter in drafters
            for confidence in (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
            for proposal in (Proposal((0,) * k, (confidence,) * k),)
        ]

    def _settle(self, won: float) -> None:
        self.gain += won
        if won > 0:
            self._park_for = FIRST_PARK
        elif not self._affordable(0.0):
            self._parked = self._park_for
            self._park_for = min(2 * self._park_for, LAST_PARK)

    def _affordable(self, seconds: float) -> bool:
        allowed = self._max_loss * self._plain_total + GRACE * self._plain_step
        return self.gain - seconds >= -allowed

    def _guess(self, width: int, position: int, plain: float) -> float:
        """The cost of a width never tried, on the line through the plain step and the nearest narrower known one."""
        slope = UNKNOWN_SLOPE * plain
        for known in self._widths:
            if known < width and (cost := self._costs.cost(known, position)) is not None:
                slope = (cost - plain) / (known - self._plain_width)
        return plain + slope * (width - self._plain_width)

    def _expected(self, proposal: Proposal, drafter: str) -> list[float]:
        """Expected committed tokens when the first k proposed ones are verified, for k = 0, 1, ..."""
        expected, path = [1.0], 1.0
        for confidence in _confidences(proposal):
            path *= self._costs.acceptance(drafter, confidence)
            expected.append(expected[-1] + path)
        return expected


class Eager(Controller):
    """Verifies every proposal in full, paying or not: for parity runs and ceilings, never for users."""

    def plan(self, position: int, room: int) -> int:
        return max(0, min(room, self._widths[-1] - 1)) if self._widths else 0

    def choose(self, proposal: Proposal, drafter: str, position: int) -> int:
        return len(proposal)


def _confidences(proposal: Proposal) -> tuple[float, ...]:
    missing = len(proposal) - len(proposal.confidence)
    return proposal.confidence[: len(proposal)] + (UNKNOWN_CONFIDENCE,) * missing


def _confidence_bucket(confidence: float) -> int:
    return min(BUCKETS - 1, max(0, int(confidence * BUCKETS)))


def _context_bucket(position: int) -> int:
    return max(8, position.bit_length())  # up to 255 tokens are one bucket, then one per doubling


def _context_range(bucket: int) -> list[int]:
    return [0 if bucket == 8 else 1 << (bucket - 1), (1 << bucket) - 1]


def _round_json(round: Round) -> dict[str, Any]:
    table = {name: getattr(round, name) for name in Round.__slots__ if name != "proposal"}
    return {**table, "proposed": len(round.proposal)}
