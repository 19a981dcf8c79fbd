"""What `pilotfish top` shows at one moment, and what happened between two of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.control.decision_log import Logged, OnStock, on_stock

MAX_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class WatchedModel:
    """One runner. Rates are tokens a second, times seconds; `right` is None before anything was drafted."""

    model: str
    pid: int
    state: str
    reason: str
    lane: str
    answering: int
    rate: float | None  # None where the daemon does not say
    accepted: int
    drafted: int
    saved: float
    requests: int
    trouble: tuple[str, ...] = ()  # with drafters and plugins

    @property
    def right(self) -> float | None:
        """Share of the drafted tokens that were accepted."""
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `time` is Unix time, `model` empty where it is about none."""

    time: float
    model: str
    text: str


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """How things stand. `started` is Unix time, None while no daemon runs; `saved` counts models that ended, too."""

    at: float
    socket: str
    pid: int | None = None
    started: float | None = None
    enabled: bool = True
    config_error: str = ""
    saved: float = 0.0
    loaded: tuple[WatchedModel, ...] = ()
    stock: tuple[OnStock, ...] = ()


def snapshot(socket: str, status: Mapping[str, Any] | None, decisions: Sequence[Logged]) -> TopSnapshot:
    """Of what the daemon says, None where none answers, and of what was decided at launches."""
    stock = tuple(on_stock(decisions))
    if status is None:
        return TopSnapshot(time.time(), socket, stock=stock)
    return TopSnapshot(
        at=time.time(),
        socket=socket,
        pid=status["daemon"]["pid"],
        started=status["daemon"]["started"],
        enabled=status["config"]["in_force"]["speculation"]["enabled"],
        config_error=status["config"]["error"],
        saved=sum(totals["saved_seconds"] for totals in status["models"].values()),
        loaded=tuple(_loaded(runner) for runner in status["runners"]),
        stock=stock,
    )


def decided(decisions: Iterable[Logged]) -> list[Event]:
    """The launches that are remembered."""
    return [Event(one.time, one.model, f"{_BECAME.get(one.decision, one.decision)}: {one.reason}") for one in decisions]


def changes(before: TopSnapshot, after: TopSnapshot) -> Iterator[Event]:
    """What is another in `after`."""
    if (before.started is None) != (after.started is None):
        yield Event(after.at, "", "the daemon is gone" if after.started is None else "a daemon is here")
    if before.config_error != after.config_error and after.started is not None:
        yield Event(after.at, "", f"config not in force: {after.config_error}" if after.config_error else "config good")
    was = {loaded.pid: loaded for loaded in before.loaded}
    now = {loaded.pid: loaded for loaded in after.loaded}
    for loaded in after.loaded:
        yield from _became(after.at, was.get(loaded.pid), loaded)
    for loaded in before.loaded:
        if loaded.pid not in now and after.started is not None:
            yield Event(after.at, loaded.model, "unloaded")


_BECAME = {"runner": "speculates", "stock": "left to stock"}


def _became(at: float, was: WatchedModel | None, now: WatchedModel) -> Iterator[Event]:
    if was is None:
        yield Event(at, now.model, f"loaded, {now.state}" + (f": {now.reason}" if now.reason else ""))
    elif (was.state, was.reason) != (now.state, now.reason):
        yield Event(at, now.model, now.state + (f": {now.reason}" if now.reason else ""))
    for trouble in now.trouble:
        if was is None or trouble not in was.trouble:
            yield Event(at, now.model, trouble)


def _loaded(runner: Mapping[str, Any]) -> WatchedModel:
    totals, measures = runner["totals"], runner.get("measures")
    accepted = measures["accepted"] if measures else totals["accepted"]
    return WatchedModel(
        model=runner["model"],
        pid=runner["pid"],
        state=runner["state"],
        reason=runner["reason"],
        lane=runner["lane"],
        answering=runner.get("answering", 0),
        rate=runner.get("tokens_per_second"),
        accepted=accepted,
        drafted=accepted + measures["rejected"] if measures else totals["drafted"],
        saved=totals["saved_seconds"],
        requests=totals["requests"],
        trouble=tuple(_trouble(runner)),
    )


def _trouble(runner: Mapping[str, Any]) -> Iterator[str]:
    yield from runner["problems"]
    for name, found in runner.get("pool", {}).items():
        if found["state"] != "ready":
            yield f"drafter {name}: {found['state']}" + (f": {found['about']}" if found["about"] else "")
    for name, why in runner["totals"]["dropped"].items():
        yield f"drafter {name} was dropped: {why}"
