"""What forwards of each kind were seen to take: smoothed, because machines are busier and idler by turns."""

from __future__ import annotations

from collections.abc import Iterator

SMOOTHING = 0.2
FIRST = 3  # of a kind, of which the quickest counts: a stall adds to what a forward takes, nothing takes from it
STALL = 3.0  # times the known cost: a stalled machine, not a dearer forward


class MeasuredCosts:
    """Seconds by kind, a tuple of whole numbers. Written by one thread, read by any."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[float, int]] = {}  # kind -> seconds, samples

    def seconds(self, *kind: int) -> float | None:
        """None when none of this kind was seen."""
        known = self._known.get(kind)
        return known[0] if known else None

    def samples(self, *kind: int) -> int:
        """How many were seen."""
        return self._known.get(kind, (0.0, 0))[1]

    def observe(self, seconds: float, *kind: int) -> None:
        """One of this kind took so long."""
        known, samples = self._known.get(kind, (seconds, 0))
        seconds = min(seconds, known if samples < FIRST else STALL * known)
        weight = 1.0 if samples < FIRST else SMOOTHING
        self._known[kind] = (known + weight * (seconds - known), samples + 1)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], float, int]]:
        """Every kind with its seconds and samples."""
        return ((kind, seconds, samples) for kind, (seconds, samples) in dict(self._known).items())
