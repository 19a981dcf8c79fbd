"""How many values lay below which bounds, kept so that counts of several processes can be added."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` values were at most `bounds[i]` and above the bound before; the last count is of those above all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def empty(cls, bounds: Sequence[float]) -> Histogram:
        """Nothing yet."""
        return cls(tuple(bounds), (0,) * (len(bounds) + 1))

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """(bound, how many were at most that), as Prometheus writes a histogram."""
        names = [*map(_bound, self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))

    def __add__(self, other: Histogram) -> Histogram:
        counts = tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum + other.sum)

    def __sub__(self, other: Histogram) -> Histogram:
        """What came since `other`, an earlier state of the same one."""
        counts = tuple(mine - its for mine, its in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum - other.sum)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; the bounds are known to whoever reads it."""
        return {"counts": list(self.counts), "sum": self.sum}

    @classmethod
    def from_json(cls, table: Mapping[str, Any], bounds: Sequence[float]) -> Histogram:
        """Raises KeyError, TypeError or ValueError for anything but `to_json`'s result under the same bounds."""
        counts = tuple(int(count) for count in table["counts"])
        if len(counts) != len(bounds) + 1:
            raise ValueError(f"a histogram of {len(bounds)} bounds has {len(bounds) + 1} counts, not {len(counts)}")
        return cls(tuple(bounds), counts, float(table["sum"]))


class Observed:
    """A histogram in the making. One thread observes; any may take what there is."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One value more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def taken(self) -> Histogram:
        """What was observed so far."""
        return Histogram(self._bounds, tuple(self._counts), self._sum)


def _bound(bound: float) -> str:
    return repr(float(bound))


def ticked(seconds: float) -> float:
    """In whole ticks of 2**-20 s: such numbers add up to the same, in whatever order."""
    return round(seconds * 2**20) / 2**20 if math.isfinite(seconds) else seconds
