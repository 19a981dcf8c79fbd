"""Who looks, and how much they may see: runners tell of their requests only as long as somebody is here.

Every viewer has a queue with bounds. One that does not read loses the oldest messages, and is told how many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.daemon.control.governor import ConnectedRunner
from pilotfish.daemon.core.live import Sight
from pilotfish.hooks.errors import RequestError

MOST = 32  # viewers
BACKLOG = 256  # messages that one has not read


@dataclass(frozen=True, slots=True)
class PageMessage:
    """One server-sent event."""

    event: str
    data: dict[str, Any]


@dataclass(slots=True, eq=False)
class Viewer:
    """One open event stream."""

    sight: Sight
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    lost: int = 0
    _waiting: deque[PageMessage] = field(default_factory=lambda: deque(maxlen=BACKLOG))

    def tell(self, message: PageMessage) -> None:
        """Queue a message; the oldest gives way."""
        if len(self._waiting) == BACKLOG:
            self.lost += 1
        self._waiting.append(message)
        self.arrived.set()

    def take(self) -> list[PageMessage]:
        """All that waits."""
        taken = list(self._waiting)
        self._waiting.clear()
        self.arrived.clear()
        if self.lost:
            taken.append(PageMessage("lost", {"messages": self.lost}))
            self.lost = 0
        return taken


class Viewers:
    """All of them. `watch` is told how much they look at together whenever that changes."""

    def __init__(self, watch: Callable[[Sight], None]) -> None:
        self._watch = watch
        self._all: list[Viewer] = []
        self.explained: dict[str, PageMessage] = {}  # by runner, the last one that each told
        self.changed = asyncio.Event()  # somebody came, or the last one went

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, sight: Sight) -> Viewer:
        """Somebody looks from now on. Raises RequestError when there are too many."""
        if len(self._all) >= MOST:
            raise RequestError(f"{MOST} pages are open already; close one")
        viewer = Viewer(sight)
        self._all.append(viewer)
        for message in self.explained.values():
            viewer.tell(message)
        self._look()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """And not any more."""
        self._all.remove(viewer)
        self._look()

    def tell(self, message: PageMessage) -> None:
        """Everybody."""
        for viewer in self._all:
            viewer.tell(message)

    def close(self) -> None:
        """End every stream."""
        for viewer in self._all:
            viewer.closed = True
            viewer.arrived.set()

    def forget(self, connected: Sequence[ConnectedRunner]) -> None:
        """Let go of what runners told that are gone."""
        here = {runner.id for runner in connected}
        self.explained = {name: message for name, message in self.explained.items() if name in here}

    def lived(self, runner: ConnectedRunner, events: Sequence[dict[str, Any]]) -> None:
        """A runner tells what happens in its requests: text only reaches those who may see it."""
        who = {"runner": runner.id, "model": runner.registration.model}
        for event in events:
            if event.get("kind") == "explained":
                message = PageMessage("explained", {**who, "explained": event.get("explained")})
                self.explained[runner.id] = message
                self.tell(message)
        rest = [event for event in events if event.get("kind") != "explained"]
        if not rest:
            return
        sights = {viewer.sight for viewer in self._all}
        messages = {Sight.TEXT: PageMessage("live", {**who, "events": rest})}
        if Sight.ROUNDS in sights:
            messages[Sight.ROUNDS] = PageMessage("live", {**who, "events": [_without_text(event) for event in rest]})
        for viewer in self._all:
            if viewer.sight is not Sight.NOTHING:
                viewer.tell(messages[viewer.sight])

    def _look(self) -> None:
        self.changed.set()
        seen = {viewer.sight for viewer in self._all}
        self._watch(next((sight for sight in (Sight.TEXT, Sight.ROUNDS) if sight in seen), Sight.NOTHING))


def _without_text(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "pieces"}
