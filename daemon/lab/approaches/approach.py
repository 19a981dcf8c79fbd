"""One way to speculate, and what it came to beside plain decoding on the same server program."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.daemon.lab.bench_systems import System


@dataclass(frozen=True, slots=True)
class Approach:
    """`drafted` is measured beside `plain`, turn by turn."""

    title: str
    about: str
    plain: System
    drafted: System


@dataclass(frozen=True, slots=True)
class ApproachResult:
    """Rates are median tokens per second from the request to the end, memory is resident bytes at the end.

    Of `compared` answers `equal` had the ids of plain decoding. `trouble` says why there are no figures.
    """

    title: str
    about: str
    rate_with: float | None = None
    rate_without: float | None = None
    memory_with: int | None = None
    memory_without: int | None = None
    acceptance: float | None = None  # accepted over proposed
    compared: int = 0
    equal: int = 0
    trouble: str = ""

    @property
    def gain(self) -> float | None:
        """How many times as fast as plain decoding."""
        return self.rate_with / self.rate_without if self.rate_with and self.rate_without else None

    @property
    def exact(self) -> bool:
        """Whether every answer was the plain one."""
        return self.compared > 0 and self.equal == self.compared

    @property
    def added_memory(self) -> int | None:
        """Bytes that it takes beside plain decoding."""
        if self.memory_with is None or self.memory_without is None:
            return None
        return self.memory_with - self.memory_without
