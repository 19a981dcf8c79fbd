"""Tokens, requests and time saved by hour, model and client program, summed up from what runners report.

Runners report sums since their model was loaded. What is new in a report is what it has more than the last one of the
same process, also when the daemon was another one then (`AccountHistory` remembers).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.totals import Totals

HOUR = 3600
DAYS = 30  # that are kept
MOST = 50_000  # rows that are kept
MOST_PROCESSES = 4096  # that may come back and are not counted twice
NO_CLIENT = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """`hour` counts from the epoch."""

    hour: int
    model: str
    client: str


Seen = Mapping[str, Totals]  # by client


class Account:
    """Everything here belongs to the event loop. `added` amounts and `moved` processes are not saved yet."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.cells: dict[Cell, Totals] = {}
        self.processes: dict[str, Seen] = {}  # what each runner had reported
        self.added: dict[Cell, Totals] = {}
        self.moved: set[str] = set()
        self._summary: tuple[object, dict[str, Any]] = (None, {})  # and for which moment it holds
        self._changes = 0

    def restore(self, cells: Mapping[Cell, Totals], processes: Mapping[str, Seen]) -> None:
        """Begin with what an earlier daemon kept; call it before the first report."""
        self.cells = {**cells, **self.cells}
        self._changes += 1
        self.processes = {**processes, **self.processes}

    def reported(self, registration: Registration, report: Report) -> None:
        """A runner says what it did since its model was loaded."""
        process = f"{registration.pid}-{registration.started:.3f}"
        before = self.processes.get(process, {})
        now: Seen = report.clients or {NO_CLIENT: report.totals}
        for client, totals in now.items():
            added = totals - before.get(client, Totals())
            if added.requests > 0:
                self._add(registration.model, client, added)
        if now != before:
            self.processes.pop(process, None)
            self.processes[process] = dict(now)
            self.moved.add(process)
            while len(self.processes) > MOST_PROCESSES:
                self.processes.pop(next(iter(self.processes)))

    def _add(self, model: str, client: str, added: Totals) -> None:
        cell = Cell(int(self._now() // HOUR), model, client)
        self.cells[cell] = self.cells.get(cell, Totals()) + added
        self.added[cell] = self.added.get(cell, Totals()) + added
        self._changes += 1
        while len(self.cells) > MOST:
            self.cells.pop(min(self.cells))

    def forget(self) -> int:
        """Drop what is older than is kept; the first hour that stays."""
        first = int(self._now() // HOUR) - 24 * DAYS
        self.cells = {cell: totals for cell, totals in self.cells.items() if cell.hour >= first}
        self.added = {cell: totals for cell, totals in self.added.items() if cell in self.cells}
        return first

    def not_saved(self, added: Mapping[Cell, Totals], moved: Iterable[str]) -> None:
        """That these could not be saved: they are to be with what came since."""
        for cell, totals in added.items():
            self.added[cell] = totals + self.added.get(cell, Totals())
        self.moved |= set(moved)

    def summary(self) -> dict[str, Any]:
        """Today and the last seven days: in all, by model and by client, JSON-ready."""
        moment = (self._changes, _midnight(self._now()))
        if self._summary[0] != moment:
            self._summary = (moment, self._summed())
        return self._summary[1]

    def _summed(self) -> dict[str, Any]:
        today, week = _midnight(self._now()), _midnight(self._now() - 6 * 24 * HOUR)
        return {
            "today": _sums(self._since(today)),
            "week": _sums(self._since(week)),
            "models": _two(self._since(today), self._since(week), lambda cell: cell.model),
            "clients": _two(self._since(today), self._since(week), lambda cell: cell.client),
        }

    def days(self) -> list[dict[str, Any]]:
        """A row for each of the last thirty days, the oldest first; `at` is its midnight, Unix time."""
        rows: dict[float, Totals] = {_midnight(self._now() - day * 24 * HOUR): Totals() for day in range(DAYS)}
        for cell, totals in self.cells.items():
            if (day := _midnight(cell.hour * HOUR)) in rows:
                rows[day] += totals
        return [{"at": at, **_figures(rows[at])} for at in sorted(rows)]

    def hours(self, count: int = 48) -> list[dict[str, Any]]:
        """A row for each of the last hours, the oldest first."""
        last = int(self._now() // HOUR)
        rows = {hour: Totals() for hour in range(last - count + 1, last + 1)}
        for cell, totals in self.cells.items():
            if cell.hour in rows:
                rows[cell.hour] += totals
        return [{"at": hour * HOUR, **_figures(totals)} for hour, totals in rows.items()]

    def _since(self, when: float) -> list[tuple[Cell, Totals]]:
        return [(cell, totals) for cell, totals in self.cells.items() if cell.hour * HOUR >= when]


def _two(
    today: Iterable[tuple[Cell, Totals]], week: Iterable[tuple[Cell, Totals]], key: Callable[[Cell], str]
) -> list[dict[str, Any]]:
    """By name, with most saved first."""
    days, weeks = _grouped(today, key), _grouped(week, key)
    rows = [
        {"name": name, "today": _figures(days.get(name, Totals())), "week": _figures(totals)}
        for name, totals in weeks.items()
    ]
    return sorted(rows, key=lambda row: -row["week"]["saved_seconds"])


def _grouped(cells: Iterable[tuple[Cell, Totals]], key: Callable[[Cell], str]) -> dict[str, Totals]:
    sums: dict[str, Totals] = {}
    for cell, totals in cells:
        sums[key(cell)] = sums.get(key(cell), Totals()) + totals
    return sums


def _sums(cells: Iterable[tuple[Cell, Totals]]) -> dict[str, Any]:
    return _figures(sum((totals for _, totals in cells), Totals()))


def _figures(totals: Totals) -> dict[str, Any]:
    figures = totals.to_json()
    del figures["dropped"]
    return figures


def _midnight(when: float) -> float:
    """The beginning of the day of `when`, in this machine's time."""
    local = time.localtime(when)
    return time.mktime((local.tm_year, local.tm_mon, local.tm_mday, 0, 0, 0, 0, 0, -1))
