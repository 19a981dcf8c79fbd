"""How often proposed tokens turn out right, by what was known when they were proposed.

A *cell* is (source, agreement, match length, place in the proposal). Its estimate is `(right + w p) / (seen + w)`,
where p is what the formula of `_suffix_scoring` says: the formula alone at first, the counts alone after many
sightings. Sightings come from every prediction that the committed text confirms or refutes, whether it was verified,
proposed or only thought of. So a cell whose tokens are too doubtful to be proposed goes on being observed, and
recovers.

Two tables stand one on the other. `Taught` belongs to the model: it fades slowly, and one request moves it by a
bounded share. `RequestCalibration` belongs to one request, fades quickly, and takes the model's table as its prior. A
stretch of bad luck silences a source in this request and costs the next one nearly nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from pilotfish.plugins.drafters._suffix.index import MAX_MATCH

LOCAL, MEMORY = range(2)  # where a match was found: in the request's own text, or in earlier ones'
LONE, SPLIT, AGREED = range(3)  # one match; several that disagree; several that agree
_STARTS = (3, 4, 5, 7, 9, 13, 17, 25, MAX_MATCH)  # of the match lengths' buckets, but for the first
_LENGTHS = [bisect_right(_STARTS, length) for length in range(MAX_MATCH + 1)]
_PLACES = [0, 1, 2, 2, 3, 3, 3, 3, *[4] * (256 - 8)]  # in the proposal
N_LENGTHS, N_PLACES = len(_STARTS) + 1, 5
N_CELLS = 2 * 3 * N_LENGTHS * N_PLACES

FORMULA_WEIGHT = 3.0  # sightings that the formula is worth
TAUGHT_WEIGHT = 6.0  # sightings that the model's table is worth to a request
FADE = 1 - 1 / 48  # of a request's older sightings, per sighting
TAUGHT_MOST = 400.0  # sightings a model's cell holds
REQUEST_MOST = 40.0  # of those, what one request may add


def cell(source: int, agreement: int, length: int, place: int) -> int:
    """The cell of a token at `place` of a proposal whose longest match is `length` long."""
    return ((source * 3 + agreement) * N_LENGTHS + _LENGTHS[length]) * N_PLACES + _PLACES[place]


class Taught:
    """What all requests of one model taught."""

    __slots__ = ("_right", "_seen")

    def __init__(self) -> None:
        self._right = array("d", bytes(8 * N_CELLS))
        self._seen = array("d", bytes(8 * N_CELLS))

    def estimate(self, cell: int, formula: float) -> float:
        seen = self._seen[cell]
        return formula + (self._right[cell] - seen * formula) / (seen + FORMULA_WEIGHT)

    def add(self, cell: int, right: float, seen: float) -> None:
        """A request's sightings, scaled down to its bounded share."""
        share = min(1.0, REQUEST_MOST / seen)
        total = self._seen[cell] + share * seen
        kept = min(1.0, TAUGHT_MOST / total)
        self._right[cell] = kept * (self._right[cell] + share * right)
        self._seen[cell] = kept * total


class RequestCalibration:
    """What one request taught so far, on top of `taught`."""

    __slots__ = ("_right", "_seen", "_taught", "_total_right", "_total_seen")

    def __init__(self, taught: Taught) -> None:
        self._taught = taught
        self._right: dict[int, float] = {}
        self._seen: dict[int, float] = {}
        self._total_right: dict[int, int] = {}
        self._total_seen: dict[int, int] = {}

    def estimate(self, cell: int, formula: float) -> float:
        """Probability that a token is right, given that all before it in its proposal are."""
        prior = self._taught.estimate(cell, formula)
        seen = self._seen.get(cell)
        if seen is None:
            return prior
        return prior + (self._right[cell] - seen * prior) / (seen + TAUGHT_WEIGHT)

    def observe(self, cell: int, right: bool) -> None:
        """A token of `cell` was committed, or another in its place."""
        self._right[cell] = FADE * self._right.get(cell, 0.0) + right
        self._seen[cell] = FADE * self._seen.get(cell, 0.0) + 1
        self._total_right[cell] = self._total_right.get(cell, 0) + right
        self._total_seen[cell] = self._total_seen.get(cell, 0) + 1

    def teach(self) -> None:
        """Hand over to the model's table. Once, when the request ends."""
        for cell, seen in self._total_seen.items():
            self._taught.add(cell, self._total_right[cell], seen)
