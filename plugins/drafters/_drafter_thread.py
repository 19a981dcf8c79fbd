"""One thread for an engine that ties what it made to the thread that made it.

Both engines here do: tinygrad keeps one connection to its kernel cache in the process, and sqlite refuses it to every
thread but the first; MLX's streams and compiled functions belong to a thread. pilotfish loads a drafter on one thread
and drafts on another.

The thread never ends, or the process could end badly: MLX's per-thread cache takes the interpreter's lock when its
thread exits, and a thread that does so while the interpreter shuts down aborts the process ("terminate called without
an active exception", seen with a ThreadPoolExecutor, which joins its threads at that moment).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from pilotfish.hooks.errors import EngineError, PilotfishError

P = ParamSpec("P")
T = TypeVar("T")


class DrafterThread:
    """Runs an engine's calls one after another, always on the same thread. Starts it at the first call."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `call` returns or raises; an error that is not pilotfish's own becomes an EngineError."""
        result: Future[T] = Future()
        self._start()
        self._calls.put((result, lambda: call(*args, **kwargs)))
        try:
            return result.result()
        except PilotfishError:
            raise
        except Exception as error:  # the engines raise whatever their layers raise, assertions included
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise EngineError(f"{self._engine} failed: {what}") from error

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._engine, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._answer(*self._calls.get())  # in a call of its own: nothing of it is kept while waiting

    def _answer(self, result: Future[Any], call: Callable[[], Any]) -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)
