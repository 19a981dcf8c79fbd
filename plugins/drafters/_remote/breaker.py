"""A circuit breaker: a server that keeps failing is left alone for a while, for longer each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FAILURES = 3  # in a row, before the first rest
FIRST_REST, LONGEST_REST = 1.0, 60.0  # seconds


class Breaker:
    """Counts failures in a row. When a rest is over, one attempt goes through; the others wait for how it ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._rest = FIRST_REST
        self._until: float | None = None  # None: closed, everything goes through
        self._last = ""

    @property
    def resting(self) -> bool:
        """Whether an attempt would be refused now."""
        return self._until is not None and self._clock() < self._until

    def attempt(self) -> bool:
        """Whether an attempt may be made now; the one that ends a rest keeps the others out meanwhile."""
        with self._lock:
            if self._until is None:
                return True
            now = self._clock()
            if now < self._until:
                return False
            self._until = now + self._rest
            return True

    def succeeded(self) -> None:
        """All is well again."""
        with self._lock:
            self._failures, self._rest, self._until, self._last = 0, FIRST_REST, None, ""

    def failed(self, error: Exception) -> None:
        """One more failure; enough of them begin a rest, and one after a rest begins a longer one."""
        with self._lock:
            self._failures += 1
            self._last = str(error)
            if self._failures < FAILURES:
                return
            if self._until is not None:
                self._rest = min(2 * self._rest, LONGEST_REST)
            self._until = self._clock() + self._rest

    def state(self) -> str:
        """One line for a person; empty while nothing is wrong."""
        with self._lock:
            if self._failures == 0:
                return ""
            times = "once" if self._failures == 1 else f"{self._failures} times in a row"
            if self._until is None:
                return f"failed {times}: {self._last}"
            left = self._until - self._clock()
            when = f"in {left:.0f} s" if left > 0 else "with the next request"
            return f"failed {times}, is tried again {when}: {self._last}"
