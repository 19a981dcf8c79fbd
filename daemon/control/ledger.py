"""What all runners did since the daemon started, by model: sums that only grow.

A runner reports sums since its own start. What it had done before the daemon came up is not counted, so that a daemon
that starts again begins at zero, as Prometheus expects of a process, and counts nothing twice. A runner that ends
leaves its sums behind; one that comes back on another connection goes on where it was. The number of models that are
told apart is bounded: whoever may connect could name any.
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.daemon.control.plans import Registration
from pilotfish.daemon.core.measures import Measures

MAX_PROCESSES = 256  # that are kept one by one, so that they may come back on another connection
MAX_MODELS = 100  # that have sums of their own
OTHERS = "(others)"  # where those of all further models go

_Process = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Heard:
    """What a process said last, and what it had done when the daemon met it."""

    label: str
    before: Measures
    now: Measures


class Ledger:
    """Measures by model. `started` is when the daemon did, in seconds since the epoch."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._heard: dict[_Process, _Heard] = {}
        self._ended: dict[str, Measures] = {}
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

    def hear(self, registration: Registration, measures: Measures) -> None:
        """A runner reports."""
        measures = measures.in_ticks()  # a sum must not go down by a rounding when `settle` adds in another order
        known = self._heard.get(registration.process)
        before = known.before if known else self._before(registration, measures)
        self._heard[registration.process] = _Heard(self.label(registration.model), before, measures)

    def sums(self) -> dict[str, Measures]:
        """By model, ended runners included; a model that was met has an entry."""
        sums = {label: Measures() for label in self.labels} | self._ended
        for heard in self._heard.values():
            sums[heard.label] += heard.now - heard.before
        return sums

    def settle(self, alive: set[_Process]) -> None:
        """Merge what the longest ended processes did into their models', where there are too many of them."""
        ended = [process for process in self._heard if process not in alive]
        for process in ended[: max(0, len(self._heard) - MAX_PROCESSES)]:
            heard = self._heard.pop(process)
            self._ended[heard.label] = self._ended.get(heard.label, Measures()) + (heard.now - heard.before)

    def _before(self, registration: Registration, measures: Measures) -> Measures:
        return measures if registration.started < self._started else Measures()
