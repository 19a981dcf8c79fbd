"""A clock that only moves when told to."""

from __future__ import annotations


class FakeClock:
    """Call it for the time in seconds; `advance` moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
