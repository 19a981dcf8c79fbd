"""What all runners did since the daemon started, by model: sums that only grow.

A runner reports sums since its own start. For Prometheus, what it had done before the daemon came up is not counted, so
that a daemon that starts again begins at zero, as is expected of a process, and counts nothing twice. A runner that
ends leaves its sums behind; one that comes back on another connection goes on where it was. The number of models that
are told apart is bounded: whoever may connect could name any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from pilotfish.daemon.control.plans import Registration

MAX_PROCESSES = 256  # that are kept one by one, so that they may come back on another connection
MAX_MERGED = 4096  # ended ones of which it is known that they were merged
MAX_MODELS = 100  # that have sums of their own
OTHERS = "(others)"  # where those of all further models go

_Process = tuple[int, float]


class Sums(Protocol):
    """What is added up: sums of which later ones are never smaller."""

    def __add__(self, other: Self, /) -> Self: ...

    def __sub__(self, other: Self, /) -> Self: ...

    def in_ticks(self) -> Self:
        """Rounded so that they add up to the same in whatever order."""
        ...


S = TypeVar("S", bound=Sums)


@dataclass(frozen=True, slots=True)
class _Heard(Generic[S]):
    """What a process said last, and what it had done when the daemon met it."""

    label: str
    before: S
    now: S


class Ledger(Generic[S]):
    """Sums by model; `none` are those of nothing. What a process did that began before `since`, in seconds since the
    epoch, counts only from its first report on."""

    def __init__(self, none: S, since: float = -math.inf) -> None:
        self._none = none
        self._since = since
        self._heard: dict[_Process, _Heard[S]] = {}  # who was heard last stands last
        self._ended: dict[str, S] = {}
        self._merged: dict[_Process, None] = {}
        self._labels: set[str] = set()

    def label(self, model: str) -> str:
        """Under which name the model is counted: the same one for as long as the daemon runs."""
        if model not in self._labels and len(self._labels) < MAX_MODELS:
            self._labels.add(model)
        return model if model in self._labels else OTHERS

    @property
    def labels(self) -> list[str]:
        """Every name under which something may be counted so far."""
        return sorted(self._labels | {OTHERS} if len(self._labels) >= MAX_MODELS else self._labels)

    def hear(self, registration: Registration, said: S) -> None:
        """A runner reports."""
        said = said.in_ticks()  # a sum must not go down by a rounding when `settle` adds in another order
        known = self._heard.pop(registration.process, None)
        before = known.before if known else self._before(registration, said)
        self._heard[registration.process] = _Heard(self.label(registration.model), before, said)

    def sums(self) -> dict[str, S]:
        """By model, ended runners included; a model that was met has an entry."""
        sums = dict.fromkeys(self.labels, self._none) | self._ended
        for heard in self._heard.values():
            sums[heard.label] += heard.now - heard.before
        return sums

    def settle(self, alive: set[_Process]) -> None:
        """Merge what the longest ended processes did into their models', where there are too many of them."""
        ended = [process for process in self._heard if process not in alive]
        for process in ended[: max(0, len(self._heard) - MAX_PROCESSES)]:
            heard = self._heard.pop(process)
            self._ended[heard.label] = self._ended.get(heard.label, self._none) + (heard.now - heard.before)
            self._merged[process] = None
            if len(self._merged) > MAX_MERGED:
                del self._merged[next(iter(self._merged))]

    def _before(self, registration: Registration, said: S) -> S:
        counted = registration.process in self._merged  # a runner that had only lost its connection
        return said if counted or registration.started < self._since else self._none
