"""Waiting for a plugin, but not for ever."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from pilotfish.daemon.registry.containment import contained
from pilotfish.hooks.errors import ProtocolViolation

T = TypeVar("T")

PATIENCE = 10.0  # seconds for one call; a deadline that counts is far shorter


class Hangs(ProtocolViolation):
    """A call that did not return. Its thread is left behind; the plugin cannot be used any further."""


@dataclass(frozen=True, slots=True)
class _Returned(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


class CallWatch:
    """Knows which call is being made, since when, and how long the slowest of each kind took.

    Calls are announced with `call`, on whatever thread makes them; `run` makes them on a thread of its own, always the
    same as in use, and gives up on the first that takes longer than its patience. Code that never lets another thread
    run (an extension module that keeps the interpreter's lock) cannot be given up on. The thread ends with the context.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience  # seconds
        self.slowest: dict[str, float] = {}  # operation -> seconds
        self.given_up = False
        self._busy: tuple[str, float, float] | None = None  # the call, since when, for how long it may take
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)

    @contextmanager
    def call(self, operation: str, shown: str, patience: float | None = None) -> Iterator[None]:
        """Announce a call; `shown` is how a person would write it."""
        if self.given_up:
            raise Hangs(f"{shown} was not called: an earlier call did not return")
        started = time.perf_counter()
        self._busy = (shown, started, self.patience if patience is None else patience)
        try:
            yield
        finally:
            self._busy = None
            took = time.perf_counter() - started
            self.slowest[operation] = max(took, self.slowest.get(operation, 0.0))

    def run(self, job: Callable[[], T]) -> T:
        """What `job` returns or raises, the latter as an Exception in any case (see `containment.contained`).

        Raises Hangs, without waiting any longer, when one of its calls hangs.
        """
        done: queue.SimpleQueue[_Returned[T] | _Raised] = queue.SimpleQueue()

        def work() -> None:
            try:
                done.put(_Returned(job()))
            except BaseException as error:  # SystemExit too: a plugin must not end the suite
                done.put(_Raised(contained(error)))

        self._post(work)
        while True:
            try:
                ended = done.get(timeout=self._left())
            except queue.Empty:
                self._look()
                continue
            if isinstance(ended, _Raised):
                raise ended.error
            return ended.value

    def _post(self, work: Callable[[], None]) -> None:
        if self.given_up:
            raise Hangs("nothing more is asked: an earlier call did not return")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="conformance", daemon=True)
            self._thread.start()
        self._jobs.put(work)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _left(self) -> float:
        """Seconds until it is time to look again: when the present call's patience ends, or soon if there is none."""
        busy = self._busy
        if busy is None:
            return min(self.patience, 0.1)
        return max(0.001, busy[1] + busy[2] - time.perf_counter())

    def _look(self) -> None:
        busy = self._busy
        if busy is None or time.perf_counter() - busy[1] < busy[2]:
            return
        self.given_up = True
        raise Hangs(
            f"{busy[0]} had not returned after {busy[2]:g} s; give whatever it waits for a deadline and answer "
            "nothing when that has passed"
        )
