"""How often proposed tokens turn out right: by drafter, by the drafter's own confidence, and by draft position.

A cell is (drafter, bucket of confidence, draft position: the place in the proposal). A drafter's own word is taken, and
corrected by how far its words were off: in this bucket, and on top of that at this place. Few sightings move an
estimate little, many decide it; a drafter whose words are true keeps them to the last digit. Old sightings fade.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from pilotfish.hooks.types import Proposal

WORD_WEIGHT = 16.0  # sightings that a drafter's own confidence is worth
BUCKET_WEIGHT = 48.0  # sightings that the bucket's correction is worth to one of its draft positions
MEMORY = 128.0  # sightings after which old ones start to fade
UNKNOWN_CONFIDENCE = 0.5
GUESS_WEIGHT = 2.0  # sightings that the first guess about a drafter is worth
FIRST_GUESS = 0.7  # for a drafter that was never asked: people configure one because they expect something of it
_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 1.0)  # of confidence: where the next one begins
_POSITIONS = (1, 2, 4, 8)  # where a new range of draft positions begins


@dataclass(slots=True)
class _Sightings:
    right: float = 0.0
    said: float = 0.0  # sum of the drafter's confidences
    seen: float = 0.0

    def add(self, right: bool, said: float) -> None:
        fade = 1.0 if self.seen < MEMORY else 0.5
        self.right, self.said, self.seen = fade * self.right + right, fade * self.said + said, fade * self.seen + 1

    def correction(self, known: float, weight: float) -> float:
        """What to add to a confidence, where `known` is to be added anyway."""
        return known + (self.right - self.said - self.seen * known) / (self.seen + weight)


class Acceptance:
    """What all requests of one loaded model taught."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, int], _Sightings] = {}
        self._cells: dict[tuple[str, int, int], _Sightings] = {}
        self._positions: dict[tuple[str, int], _Sightings] = {}  # whatever the confidence

    def estimate(self, drafter: str, confidence: float, draft_position: int = 0) -> float:
        """Probability that a token of this `confidence` at `draft_position` is right, if all before it were."""
        bucket = _bucket(confidence)
        found = self._buckets.get((drafter, bucket))
        if found is None:
            return confidence
        correction = found.correction(0.0, WORD_WEIGHT)
        cell = self._cells.get((drafter, bucket, _range_of(draft_position)))
        if cell is not None:
            correction = cell.correction(correction, BUCKET_WEIGHT)
        return min(1.0, max(0.0, confidence + correction))

    def expected(self, drafter: str, draft_position: int) -> float:
        """The same before a proposal was seen, so whatever its confidence."""
        found = self._positions.get((drafter, _range_of(draft_position)))
        if found is None:
            return FIRST_GUESS
        return (found.right + GUESS_WEIGHT * FIRST_GUESS) / (found.seen + GUESS_WEIGHT)

    def observe(self, drafter: str, proposal: Proposal, accepted: int, checked: int) -> None:
        """The first `accepted` of a proposal were right, and the one after them wrong if it is among the `checked`."""
        for draft_position, confidence in enumerate(confidences(proposal)[: min(accepted + 1, checked)]):
            right, bucket, where = draft_position < accepted, _bucket(confidence), _range_of(draft_position)
            self._buckets.setdefault((drafter, bucket), _Sightings()).add(right, confidence)
            self._cells.setdefault((drafter, bucket, where), _Sightings()).add(right, confidence)
            self._positions.setdefault((drafter, where), _Sightings()).add(right, confidence)

    @property
    def drafters(self) -> list[str]:
        """Of whom anything is known."""
        return sorted({drafter for drafter, _ in list(self._buckets)})

    def describe(self) -> list[dict[str, Any]]:
        """By drafter and confidence, JSON-ready; safe from any thread."""
        return [
            {"drafter": drafter, "confidence": _bounds(b), "rate": s.right / s.seen, "seen": s.seen}
            for (drafter, b), s in sorted(dict(self._buckets).items())
            if s.seen
        ]

    def describe_positions(self) -> list[dict[str, Any]]:
        """By drafter and draft position, whatever the confidence, JSON-ready; safe from any thread.

        `position` is a range of places in the proposal, the first of which is 1; None: open-ended.
        """
        return [
            {"drafter": drafter, "position": _places(where), "rate": s.right / s.seen, "seen": s.seen}
            for (drafter, where), s in sorted(dict(self._positions).items())
            if s.seen
        ]


def confidences(proposal: Proposal) -> tuple[float, ...]:
    """One for each token; what a drafter does not say counts as unknown."""
    missing = len(proposal) - len(proposal.confidence)
    return proposal.confidence[: len(proposal)] + (UNKNOWN_CONFIDENCE,) * missing if missing else proposal.confidence


def _bucket(confidence: float) -> int:
    return bisect_right(_BUCKETS, confidence, hi=len(_BUCKETS) - 1)


def _bounds(bucket: int) -> list[float]:
    return [_BUCKETS[bucket - 1] if bucket else 0.0, _BUCKETS[bucket]]


def _places(where: int) -> list[int | None]:
    first = _POSITIONS[where - 1] + 1 if where else 1
    return [first, _POSITIONS[where] if where < len(_POSITIONS) else None]


def _range_of(draft_position: int) -> int:
    return bisect_right(_POSITIONS, draft_position)
