"""What taking a block back is expected to take, on a target that cannot cut what it rejects (`RestoresStates`)."""

from __future__ import annotations

from collections.abc import Sequence


class GoingBack:
    """Of one proposal at one place, whose verified part grows.

    `again[n - 1]` seconds are what a commit of n tokens takes that takes its block back. `plain` is a plain step's.
    """

    def __init__(self, again: Sequence[float], plain: float) -> None:
        self._again, self._plain = again, plain
        self._k, self._reached = 0, 1.0  # tokens that are verified, and how probably all of them are right
        self._mean = self._worst = 0.0

    def of(self, expected: Sequence[float], k: int, width: int) -> tuple[float, float]:
        """Seconds to be expected if k tokens are verified in a forward of `width`, and the most that the tokens
        committed then do not make up for. k never falls; `expected[k]` tokens come of verifying k.
        """
        while self._k < k:
            self._k += 1
            reached = expected[self._k] - expected[self._k - 1]
            self._mean += (self._reached - reached) * self._again[self._k - 1]
            self._worst = max(self._worst, self._lost(self._k))
            self._reached = reached
        if width == k + 1:  # nothing is taken back if all of it is right
            return self._mean, self._worst
        return self._mean + self._reached * self._again[k], max(self._worst, self._lost(k + 1))

    def _lost(self, committed: int) -> float:
        return self._again[committed - 1] - (committed - 1) * self._plain
