"""Conversations that outlive the process: written by a thread of their own, read when one comes up again.

What was handed over and is not written yet is found like what is, so that no answer depends on how fast the disk is.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.context import CellState
from pilotfish.plugins._cells.conversation_files import ConversationFiles, KeptFile, UnreadableFile

log = logging.getLogger("pilotfish.verifiers")

LOOK_SECONDS = 5.0  # that a first request may wait for a slow disk
MOST_PENDING = 4  # conversations that memory gave up and that hold it until they are written; beyond, they are lost


@dataclass(frozen=True, slots=True, eq=False)
class KeptConversation:
    """What a slot held, in memory."""

    history: CellHistory
    state: CellState

    @property
    def size(self) -> int:
        """Bytes."""
        return self.state.size + ids_size(self.history)


def ids_size(history: CellHistory) -> int:
    """Bytes that its ids take."""
    return len(history) * history.tokens.itemsize


@dataclass(frozen=True, slots=True)
class DiskTotals:
    """How it stands; sizes in bytes."""

    files: int = 0
    bytes: int = 0
    failed: int = 0


class ConversationDisk:
    """`files` belong to this object's thread, but for reading one. All methods are the engine thread's, and raise
    nothing."""

    def __init__(self, files: ConversationFiles) -> None:
        self._files = files
        self._lock = threading.Lock()  # guards what follows
        self._kept: list[KeptFile] = []
        self._pending: list[KeptConversation] = []
        self._failed = 0
        self._looked = threading.Event()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="conversations", daemon=True)
        self._work.put(self._find)
        self._thread.start()

    @property
    def limit(self) -> int:
        """Bytes that all files together may have."""
        return self._files.limit

    @property
    def totals(self) -> DiskTotals:
        """Of this model, build and setting. Safe from any thread."""
        with self._lock:
            return DiskTotals(len(self._kept), sum(kept.size for kept in self._kept), self._failed)

    @property
    def pending(self) -> list[KeptConversation]:
        """What is on its way."""
        with self._lock:
            return list(self._pending)

    @property
    def kept(self) -> list[KeptFile]:
        """What is there, once the folder was looked at, which begins with the load."""
        self._looked.wait(LOOK_SECONDS)
        with self._lock:
            return list(self._kept)

    def holds(self, history: CellHistory) -> int:
        """How many of the ids of `history`, from the first on, are here."""
        histories = [*(one.history for one in self.pending), *(one.history for one in self.kept)]
        return max((held.there(held.shared(history.tokens)) for held in histories), default=0)

    def put(self, one: KeptConversation) -> None:
        """Have one written."""
        with self._lock:
            self._pending.append(one)
        self._work.put(lambda: self._write(one))

    def take_over(self, one: KeptConversation) -> None:
        """Have one written that memory has no room for any more; it is lost where too many wait already."""
        if len(self.pending) < MOST_PENDING:
            self.put(one)
            return
        with self._lock:
            self._failed += 1

    def read(self, kept: KeptFile) -> CellState | None:
        """Its cells; None, after a line in the log, when they cannot be had."""
        try:
            state = self._files.read(kept)
        except (OSError, UnreadableFile, MemoryError) as error:
            self.lose(kept, error)
            return None
        self._work.put(lambda: self._files.used(kept))
        return state

    def lose(self, kept: KeptFile, why: Exception) -> None:
        """It is of no use."""
        log.warning("%s is not used, and removed: %s", kept.path, why)
        with self._lock:
            self._failed += 1
            self._kept = [one for one in self._kept if one is not kept]
        self._work.put(lambda: self._files.remove(kept))

    def close(self, seconds: float) -> None:
        """Write what is pending, for at most so long."""
        self._work.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:
                log.exception("conversations on disk")

    def _find(self) -> None:
        try:
            found = self._files.found()
            with self._lock:
                self._kept = found
        finally:
            self._looked.set()

    def _write(self, one: KeptConversation) -> None:
        try:
            kept = self._files.write(one.history, one.state)
        except BaseException as error:
            with self._lock:
                self._failed += 1
                self._pending.remove(one)
            if not isinstance(error, OSError | UnreadableFile | MemoryError):
                raise
            log.warning("a conversation is not kept on disk: %s", error)
            return
        with self._lock:
            inside = [old for old in self._kept if old.history.shared(one.history.tokens) == len(old.history)]
            gone = [old for old in inside if old.path != kept.path]
            there = [old for old in self._kept if old not in inside and old.path.exists()]  # others make room, too
            self._kept = [*there, kept]
            self._pending.remove(one)
        for old in gone:
            self._files.remove(old)
