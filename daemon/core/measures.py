"""What `/metrics` tells of a loaded model: counted round by round while answers are made, and added over processes.

`Totals` are counted when an answer has ended; these move while it is written. Every number only grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import Outcome
from pilotfish.daemon.core.histogram import Histogram, Observed, ticked

_NO_ROUNDS = Histogram.empty((0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5))
_NO_WAITS = Histogram.empty((0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0))
_NO_LENGTHS = Histogram.empty((0, 1, 2, 3, 4, 6, 8, 12, 16, 32))


@dataclass(frozen=True, slots=True)
class Measures:
    """Sums since the model was loaded. Counts are tokens unless said otherwise, times are seconds.

    `plain` and `accepted` make up what was answered, `accepted` and `rejected` what was drafted and verified.
    """

    answers: int = 0  # that have ended
    prompt: int = 0
    cached: int = 0  # of prompts, that an earlier request had left
    plain: int = 0
    accepted: int = 0
    rejected: int = 0
    dropped: int = 0  # drafters, in the middle of a request
    saved: float = 0.0  # by answers that were faster than plain decoding
    lost: float = 0.0  # by answers that were slower
    plain_rounds: Histogram = _NO_ROUNDS
    drafted_rounds: Histogram = _NO_ROUNDS
    first_token: Histogram = _NO_WAITS
    accepted_length: Histogram = _NO_LENGTHS  # tokens of a verified proposal

    @property
    def answered(self) -> int:
        """Tokens of answers."""
        return self.plain + self.accepted

    def __add__(self, other: Measures) -> Measures:
        return Measures(*(getattr(self, name) + getattr(other, name) for name in _NAMES))

    def __sub__(self, other: Measures) -> Measures:
        """What came since `other`, an earlier state of the same ones."""
        return Measures(*(getattr(self, name) - getattr(other, name) for name in _NAMES))

    def in_ticks(self) -> Measures:
        """With times in whole ticks."""
        times: dict[str, Any] = {name: ticked(getattr(self, name)) for name in _TIMES}
        histograms: dict[str, Histogram] = {name: getattr(self, name) for name in _BOUNDS}
        rounded: dict[str, Any] = {name: replace(one, sum=ticked(one.sum)) for name, one in histograms.items()}
        return replace(self, **times, **rounded)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {name: value.to_json() if name in _BOUNDS else value for name, value in values.items()}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Measures:
        """Raises KeyError, TypeError or ValueError for anything but `to_json`'s result."""
        numbers: dict[str, Any] = {name: int(table[name]) for name in _COUNTS}
        numbers |= {name: float(table[name]) for name in _TIMES}
        numbers |= {name: Histogram.from_json(table[name], bounds) for name, bounds in _BOUNDS.items()}
        return cls(**numbers)


_NAMES = tuple(f.name for f in fields(Measures))
_BOUNDS = {f.name: f.default.bounds for f in fields(Measures) if isinstance(f.default, Histogram)}
_TIMES = ("saved", "lost")
_COUNTS = tuple(name for name in _NAMES if name not in _BOUNDS and name not in _TIMES)


class Meter:
    """Measures in the making. The engine's thread counts; any may take what there is."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._times = dict.fromkeys(_TIMES, 0.0)
        self._observed = {name: Observed(bounds) for name, bounds in _BOUNDS.items()}

    def round(self, round: Round) -> None:
        """A round was committed."""
        drafted = len(round.proposal)
        self._counts["accepted"] += round.accepted
        self._counts["plain"] += round.committed - round.accepted
        self._counts["rejected"] += drafted - round.accepted
        self._observed["drafted_rounds" if drafted else "plain_rounds"].observe(round.seconds)
        if drafted:
            self._observed["accepted_length"].observe(round.accepted)

    def first_token(self, seconds: float) -> None:
        """An answer began, so long after its request had a slot."""
        self._observed["first_token"].observe(seconds)

    def answer(self, outcome: Outcome, gain: float) -> None:
        """An answer ended; `gain` is what speculation saved of its time, negative where it cost some."""
        timings = outcome.timings
        for name, count in (
            ("answers", 1),
            ("prompt", timings.prompt_n),
            ("cached", timings.cache_n),
            ("dropped", len(outcome.report.dropped)),
        ):
            self._counts[name] += count
        self._times["saved" if gain > 0 else "lost"] += abs(gain)

    def taken(self) -> Measures:
        """What was counted so far."""
        histograms = {name: observed.taken() for name, observed in self._observed.items()}
        numbers: dict[str, Any] = {**self._counts, **self._times, **histograms}
        return Measures(**numbers)
