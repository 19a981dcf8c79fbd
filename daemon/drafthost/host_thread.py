"""One thread that works for an event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pilotfish.daemon.registry.containment import contained

log = logging.getLogger("pilotfish.hosting")

GRACE = 5.0  # seconds that the work under way may take to end

T = TypeVar("T")


class HostThread:
    """Runs calls one after another. The thread is a daemon: one that hangs in an engine does not keep the process."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises, the latter as an Exception in any case (see `containment.contained`).

        It runs to its end also when the caller no longer waits.
        """
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.shield(asyncio.wrap_future(future))

    async def end(self, last: Callable[[], None]) -> None:
        """Run `last` after what is under way, and end; given up after a while."""
        try:
            await asyncio.wait_for(self.do(last), GRACE)
        except TimeoutError:
            log.warning("the drafter is still busy after %.0f s; it is left behind", GRACE)
        except Exception:
            log.exception("the drafter failed at its end")
        finally:
            self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(contained(error))
            else:
                future.set_result(result)
