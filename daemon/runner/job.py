"""One generation on its way from the engine's thread to the event loop: a backlog with bounds, and an end.

The engine never waits for a reader: a request whose backlog is full is given no turn until something was taken of it,
while the others go on. A reader that takes nothing for a while is given up, so that one stalled client neither fills
the memory nor keeps a slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken
from pilotfish.daemon.registry.containment import contained

log = logging.getLogger("pilotfish.runner")

MAX_BACKLOG = 4096  # tokens that the reader has not taken
STALLED_AFTER = 30.0  # seconds without the reader taking anything from a full backlog


class Job:
    """`next`, `cancel` and `outcome` belong to the event loop, the rest to the engine's thread.

    `stirred` is called when the engine may go on with it: there is room again, or the client left.
    """

    def __init__(self, request: GenerationRequest, stirred: Callable[[], None] = lambda: None) -> None:
        self.request = request
        self._stirred = stirred
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._backlog: list[OutputToken] = []
        self._full_since = 0.0  # time.monotonic()
        self._result: Outcome | Exception | None = None
        self._cancelled = False

    async def next(self) -> list[OutputToken] | None:
        """What was emitted since the last call, at least one token; None when there is no more."""
        while True:
            await self._arrived.wait()
            if batch := self._take():
                return batch
            if self._result is not None:
                return None

    def outcome(self) -> Outcome:
        """How it ended, once `next` has returned None. Raises what the generation raised."""
        if isinstance(self._result, Exception):
            raise self._result
        if self._result is None:
            raise RuntimeError("the job is not finished")
        return self._result

    def cancel(self) -> None:
        """The client left. Safe at any time, also after the end."""
        self._cancelled = True
        self._stirred()

    def cancelled(self) -> bool:
        """Whether the client left."""
        return self._cancelled

    def may_go_on(self) -> bool:
        """Whether its next turn may come: there is room for what it brings, or it is to end. Gives up who stalls."""
        if len(self._backlog) < MAX_BACKLOG or self._cancelled:
            return True
        if time.monotonic() - self._full_since < STALLED_AFTER:
            return False
        log.warning("a client has not read for %.0f s; its request is ended", STALLED_AFTER)
        self._cancelled = True
        return True

    def emit(self, output_tokens: Sequence[OutputToken]) -> None:
        """Hand tokens over. Never waits."""
        with self._lock:
            idle = not self._backlog
            self._backlog.extend(output_tokens)
            if len(self._backlog) >= MAX_BACKLOG:
                self._full_since = time.monotonic()
        if idle:
            self._wake()

    def finish(self, result: Outcome | BaseException) -> None:
        """The last word; nothing may be emitted afterwards."""
        with self._lock:
            self._result = contained(result) if isinstance(result, BaseException) else result
        self._wake()

    def _take(self) -> list[OutputToken]:
        with self._lock:
            batch, self._backlog = self._backlog, []
            if self._result is None:
                self._arrived.clear()
        if len(batch) >= MAX_BACKLOG:
            self._stirred()
        return batch

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody listens any more
            self._loop.call_soon_threadsafe(self._arrived.set)
