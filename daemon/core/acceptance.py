"""How often proposed tokens turn out right: by drafter, by the drafter's own confidence, and by draft position.

A cell is (drafter, bucket of confidence, draft position: the place in the proposal). What is known of the cell stands
on what is known of the bucket at any draft position, and that on the drafter's own word: few sightings move an estimate
little, many decide it.
Old sightings fade.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from pilotfish.hooks.types import Proposal

WORD_WEIGHT = 2.0  # sightings that a drafter's own confidence is worth
BUCKET_WEIGHT = 8.0  # sightings that the bucket's rate is worth to one of its draft positions
MEMORY = 128.0  # sightings after which old ones start to fade
BUCKETS = 10  # of confidence
UNKNOWN_CONFIDENCE = 0.5
FIRST_GUESS = 0.7  # for a drafter that was never asked: people configure one because they expect something of it
_POSITIONS = (1, 2, 4, 8)  # where a new range of draft positions begins


@dataclass(slots=True)
class _Sightings:
    right: float = 0.0
    seen: float = 0.0

    def add(self, right: bool) -> None:
        fade = 1.0 if self.seen < MEMORY else 0.5
        self.right, self.seen = fade * self.right + right, fade * self.seen + 1

    def rate(self, prior: float, weight: float) -> float:
        return (self.right + weight * prior) / (self.seen + weight)


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
        rate = confidence if found is None else found.rate(confidence, WORD_WEIGHT)
        cell = self._cells.get((drafter, bucket, _range_of(draft_position)))
        return rate if cell is None else cell.rate(rate, BUCKET_WEIGHT)

    def expected(self, drafter: str, draft_position: int) -> float:
        """The same before a proposal was seen, so whatever its confidence."""
        found = self._positions.get((drafter, _range_of(draft_position)))
        return FIRST_GUESS if found is None else found.rate(FIRST_GUESS, WORD_WEIGHT)

    def observe(self, drafter: str, proposal: Proposal, accepted: int, checked: int) -> None:
        """The first `accepted` of a proposal were right, and the one after them wrong if it is among the `checked`."""
        for draft_position, confidence in enumerate(confidences(proposal)[: min(accepted + 1, checked)]):
            right, bucket, where = draft_position < accepted, _bucket(confidence), _range_of(draft_position)
            self._buckets.setdefault((drafter, bucket), _Sightings()).add(right)
            self._cells.setdefault((drafter, bucket, where), _Sightings()).add(right)
            self._positions.setdefault((drafter, where), _Sightings()).add(right)

    @property
    def drafters(self) -> list[str]:
        """Of whom anything is known."""
        return sorted({drafter for drafter, _ in list(self._buckets)})

    def describe(self) -> list[dict[str, Any]]:
        """By drafter and confidence, JSON-ready; safe from any thread."""
        return [
            {
                "drafter": drafter,
                "confidence": [b / BUCKETS, (b + 1) / BUCKETS],
                "rate": s.right / s.seen,
                "seen": s.seen,
            }
            for (drafter, b), s in sorted(dict(self._buckets).items())
            if s.seen
        ]


def confidences(proposal: Proposal) -> tuple[float, ...]:
    """One for each token; what a drafter does not say counts as unknown."""
    missing = len(proposal) - len(proposal.confidence)
    return proposal.confidence[: len(proposal)] + (UNKNOWN_CONFIDENCE,) * missing


def _bucket(confidence: float) -> int:
    return min(BUCKETS - 1, max(0, int(confidence * BUCKETS)))


def _range_of(draft_position: int) -> int:
    return bisect_right(_POSITIONS, draft_position)
