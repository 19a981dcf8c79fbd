"""What happened to models and the daemon, the last thousand things: loads, fallbacks, drafters that were dropped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pilotfish.daemon.control.decision_log import Logged
from pilotfish.daemon.control.plans import Report

KEPT = 1000


@dataclass(frozen=True, slots=True)
class Happening:
    """`at` is Unix time; `kind` one of `loaded`, `unloaded`, `stock`, `state`, `drafter`, `dropped`, `config`,
    `plugins`, `daemon`; `model` is empty where it is about all; `text` is for a person."""

    at: float
    kind: str
    model: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


class Happenings:
    """The last `KEPT` of them, oldest first. `heard` is called for each new one."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: deque[Happening] = deque(maxlen=KEPT)
        self.heard: list[Callable[[Happening], None]] = []

    def add(self, kind: str, model: str, text: str) -> None:
        """Something happened just now."""
        happening = Happening(self._now(), kind, model, text)
        self._kept.append(happening)
        for tell in self.heard:
            tell(happening)

    def remember(self, earlier: Sequence[Happening]) -> None:
        """Put what an earlier daemon knew before everything else."""
        self._kept = deque([*earlier, *self._kept], maxlen=KEPT)

    def all(self, decisions: Sequence[Logged] = ()) -> list[Happening]:
        """The last `KEPT`, oldest first, and the loads among `decisions` that went to stock with them."""
        stock = (Happening(d.time, "stock", d.model, d.reason) for d in decisions if d.decision == "stock")
        return sorted([*self._kept, *stock], key=lambda happening: happening.at)[-KEPT:]


def differences(before: Report, after: Report) -> Iterator[tuple[str, str]]:
    """What a runner's new report says that the last one did not: kind and text."""
    if before.standing != after.standing:
        yield "state", f"{after.standing.state} {after.standing.reason}".strip()
    for name, found in after.pool.items():
        if before.pool.get(name) != found and (found["state"] != "ready" or found["about"]):
            yield "drafter", _said(name, found)
    for name, why in after.totals.dropped.items():
        if before.totals.dropped.get(name) != why:
            yield "dropped", f"drafter {name} was dropped in the middle of an answer: {why}"


def _said(name: str, found: Mapping[str, str]) -> str:
    return f"drafter {name}: {found['state']}" + (f": {found['about']}" if found["about"] else "")
