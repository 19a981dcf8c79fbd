"""What one loaded model has done since it was loaded, and how speculation stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pilotfish.daemon.core.histogram import ticked
from pilotfish.hooks.types import SessionReport


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all answers. Counts are tokens, times are seconds; `dropped` is drafter -> why, the last time."""

    requests: int = 0
    committed: int = 0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    seconds: float = 0.0
    saved_seconds: float = 0.0  # negative when trying cost more than it won
    dropped: Mapping[str, str] = field(default_factory=dict)

    @property
    def acceptance(self) -> float | None:
        """Share of the drafted tokens that were right; None before any was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    def with_answer(self, report: SessionReport, saved_seconds: float) -> Totals:
        """These and one more answer."""
        return self + Totals(
            1,
            report.committed,
            report.drafted,
            report.accepted,
            report.rounds,
            report.seconds,
            saved_seconds,
            report.dropped,
        )

    def __add__(self, other: Totals) -> Totals:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return Totals(**sums, dropped={**self.dropped, **other.dropped})

    def __sub__(self, other: Totals) -> Totals:
        """What came since `other`, an earlier state of the same ones."""
        since = {name: getattr(self, name) - getattr(other, name) for name in _SUMMED}
        return Totals(**since, dropped=self.dropped)

    def in_ticks(self) -> Totals:
        """With times in whole ticks: see `pilotfish.daemon.core.histogram.ticked`."""
        return replace(self, seconds=ticked(self.seconds), saved_seconds=ticked(self.saved_seconds))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with the acceptance rate."""
        return {**asdict(self), "acceptance": self.acceptance}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Totals:
        """Raises KeyError, TypeError or ValueError for anything but `to_json`'s result."""
        return cls(
            requests=int(table["requests"]),
            committed=int(table["committed"]),
            drafted=int(table["drafted"]),
            accepted=int(table["accepted"]),
            rounds=int(table["rounds"]),
            seconds=float(table["seconds"]),
            saved_seconds=float(table["saved_seconds"]),
            dropped={str(name): str(why) for name, why in dict(table["dropped"]).items()},
        )


_SUMMED = tuple(f.name for f in fields(Totals) if f.name != "dropped")


@dataclass(frozen=True, slots=True)
class Standing:
    """`active`, `parked` (did not pay lately), `plain` (cannot speculate) or `off` (is not to), and why.

    `by_lane`: another lane, which a certificate may bring, would change it.
    """

    state: str = "active"
    reason: str = ""
    by_lane: bool = False
