"""How often proposed tokens turn out right, by what was known when they were proposed.

A *cell* is (source, kind of evidence, match length, place in the proposal). Its estimate is `(right + w p) / (seen +
w)`, where p is what the table that comes with the product says (`priors`): that table alone at first, the counts alone
after many sightings. Sightings come from every prediction that the committed text confirms or refutes, whether it was
verified, proposed or only thought of. So nothing has to be risked to learn, and a cell whose tokens are too doubtful
to be proposed goes on being observed, and recovers.

Two tables stand one on the other. `Taught` belongs to the model: it fades slowly, one request moves it by a bounded
share, and it outlives the process (`kept`). `RequestCalibration` belongs to one request, fades quickly, and takes the
model's table as its prior. A stretch of bad luck silences a source in this request and costs the next one nearly
nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from pilotfish.plugins.drafters._suffix.index import MAX_MATCH

LOCAL, MEMORY = range(2)  # where a match was found: in the request's own text, or in earlier ones'
LONE, PAIR, AGREED, OUTVOTED, SPLIT, MAJORITY, COUNTED = KINDS = range(7)
# One match; two that agree; more. The winner of a vote with less than 0.4, less than 0.7, more of it. The next number.
_STARTS = (2, 3, 4, 5, 6, 8, 12, 16, 24, MAX_MATCH)  # of the match lengths' buckets, but for the first
LENGTHS = [bisect_right(_STARTS, length) for length in range(MAX_MATCH + 1)]
PLACES = [0, 1, 2, 2, 3, 3, 3, 3, *[4] * (256 - 8)]  # in the proposal
N_KINDS, N_LENGTHS, N_PLACES = len(KINDS), len(_STARTS) + 1, 5
N_CELLS = 2 * N_KINDS * N_LENGTHS * N_PLACES

PRIOR_WEIGHT = 12.0  # sightings that the table which comes with the product is worth to a model
TAUGHT_WEIGHT = 6.0  # sightings that the model's table is worth to a request
FADE = 1 - 1 / 48  # of a request's older sightings, per sighting
TAUGHT_MOST = 400.0  # sightings a model's cell holds
REQUEST_MOST = 40.0  # of those, what one request may add


def cell(source: int, kind: int, length: int, place: int) -> int:
    """The cell of a token at `place` of a proposal whose longest match is `length` long by then."""
    if length > MAX_MATCH:
        length = MAX_MATCH
    return ((source * N_KINDS + kind) * N_LENGTHS + LENGTHS[length]) * N_PLACES + PLACES[place]


class Taught:
    """What all requests of one model taught, on top of `priors`: a probability for each cell."""

    __slots__ = ("_priors", "right", "seen")

    def __init__(self, priors: Sequence[float]) -> None:
        self._priors = priors
        self.right = array("d", bytes(8 * N_CELLS))
        self.seen = array("d", bytes(8 * N_CELLS))

    def estimate(self, cell: int) -> float:
        """Probability that a token of `cell` is right, given that all before it in its proposal are."""
        prior, seen = self._priors[cell], self.seen[cell]
        return prior + (self.right[cell] - seen * prior) / (seen + PRIOR_WEIGHT)

    def add(self, cell: int, right: float, seen: float) -> None:
        """A request's sightings, scaled down to its bounded share."""
        share = min(1.0, REQUEST_MOST / seen)
        total = self.seen[cell] + share * seen
        kept = min(1.0, TAUGHT_MOST / total)
        self.right[cell] = kept * (self.right[cell] + share * right)
        self.seen[cell] = kept * total


class RequestCalibration:
    """What one request taught so far, on top of `taught`."""

    __slots__ = ("_estimates", "_right", "_seen", "_taught", "_total_right", "_total_seen")

    def __init__(self, taught: Taught) -> None:
        self._taught = taught
        self._estimates: dict[int, float] = {}  # of the cells that were asked for
        self._right: dict[int, float] = {}
        self._seen: dict[int, float] = {}
        self._total_right: dict[int, int] = {}
        self._total_seen: dict[int, int] = {}

    def estimate(self, cell: int) -> float:
        """Probability that a token is right, given that all before it in its proposal are."""
        known = self._estimates.get(cell)
        if known is None:
            known = self._estimates[cell] = self._taught.estimate(cell)
        return known

    def observe(self, cell: int, right: bool) -> None:
        """A token of `cell` was committed, or another in its place."""
        rights = self._right[cell] = FADE * self._right.get(cell, 0.0) + right
        seen = self._seen[cell] = FADE * self._seen.get(cell, 0.0) + 1
        self._total_right[cell] = self._total_right.get(cell, 0) + right
        self._total_seen[cell] = self._total_seen.get(cell, 0) + 1
        prior = self._taught.estimate(cell)
        self._estimates[cell] = prior + (rights - seen * prior) / (seen + TAUGHT_WEIGHT)

    def teach(self) -> None:
        """Hand over to the model's table. Once, when the request ends."""
        for cell, seen in self._total_seen.items():
            self._taught.add(cell, self._total_right[cell], seen)
