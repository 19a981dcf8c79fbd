"""Telling that files changed: directory watches, gathered into one call when things have calmed down.

Folders are watched, never files: a save by write-then-rename puts another file under the name, and a watch on the
old one would see nothing from then on. A folder that does not exist is watched for at the nearest one above it.
What changed is found by comparing stamps, so an event too many costs a look and nothing else. Where a folder cannot
be watched (the system's watches are used up, say), somebody looks often instead, and now and then tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

log = logging.getLogger("pilotfish.watch")

QUIET = 0.1  # seconds without an event before anyone looks: an editor's save is several events
PATIENCE = 1.0  # seconds after which somebody looks although events keep coming
LOOK_ANYWAY = 30.0  # seconds: events are lost on network file systems and when the kernel's queue overflows
LOOK_OFTEN = 2.0  # seconds, while there is a folder that cannot be watched
TRY_AGAIN = 30.0  # seconds until a folder that could not be watched is tried again
# Opening and reading are events too; whoever looks would wake itself up for ever.
_NO_CHANGE = frozenset({"opened", "closed_no_write"})


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to watch, with everything below it or not. `inode` tells it from a later folder of the same name."""

    folder: Path
    recursive: bool = False
    inode: int = 0


class Watch(FileSystemEventHandler):
    """Awaits `look` after every change in the places, and now and then without one. One `look` at a time."""

    def __init__(self, look: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._touched = asyncio.Event()
        self._observer: BaseObserver = Observer()
        self._watches: dict[Place, ObservedWatch] = {}
        self._failed: dict[Place, float] = {}  # those that cannot be watched, and when to try again
        self._interval = LOOK_ANYWAY
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; `places` may be called before and after."""
        self._task = asyncio.create_task(self._run(), name="watch")

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._observer.is_alive():
            self._observer.stop()
            await asyncio.to_thread(self._observer.join)

    async def places(self, wanted: Iterable[Place]) -> bool:
        """Watch these and no others; whether any is watched only now, so that something may have changed before."""
        # On a thread: ending a watch waits for watchdog's own, up to half a second while it pairs moves.
        return await asyncio.to_thread(self._arrange, {_existing(place) for place in wanted})

    def _arrange(self, nearest: set[Place]) -> bool:
        if not self._observer.is_alive():  # before it has anything to watch, because it would fail with the first
            self._observer.start()
        for place in self._watches.keys() - nearest:
            with contextlib.suppress(KeyError, OSError):  # the folder went away, and its watch with it
                self._observer.unschedule(self._watches[place])
            del self._watches[place]
        self._failed = {place: when for place, when in self._failed.items() if place in nearest}
        begun = [self._begin(place) for place in nearest - self._watches.keys()]
        self._interval = LOOK_OFTEN if self._failed else LOOK_ANYWAY
        return any(begun)

    def _begin(self, place: Place) -> bool:
        """Whether it is watched from now on."""
        now = self._clock()
        if now < self._failed.get(place, now):
            return False
        try:
            self._watches[place] = self._observer.schedule(self, str(place.folder), recursive=place.recursive)
        except OSError as error:
            if place not in self._failed:
                why = f"cannot be watched ({error}); it is looked at every {LOOK_OFTEN:g} s instead"
                log.warning("%s: %s", place.folder, why)
            self._failed[place] = now + TRY_AGAIN
            return False
        if self._failed.pop(place, None) is not None:
            log.info("%s: is watched again", place.folder)
        return True

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called on watchdog's thread."""
        if event.event_type in _NO_CHANGE:
            return
        with contextlib.suppress(RuntimeError):  # the loop is gone: the daemon is ending
            self._loop.call_soon_threadsafe(self._touched.set)

    async def _run(self) -> None:
        while True:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._touched.wait()
                await self._until_quiet()
            self._touched.clear()
            try:
                await self._look()
            except Exception:
                log.exception("a change could not be looked at; the next one will be")

    async def _until_quiet(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while self._touched.is_set():
                self._touched.clear()
                await asyncio.sleep(QUIET)


def _existing(place: Place) -> Place:
    """The place, or the nearest folder above it that is there, without what else lies below that."""
    for folder in (place.folder, *place.folder.absolute().parents):
        with contextlib.suppress(OSError):
            if folder.is_dir():
                return Place(folder.resolve(), place.recursive and folder == place.folder, folder.stat().st_ino)
    return Place(Path("/"))
