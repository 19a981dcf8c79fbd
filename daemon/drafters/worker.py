"""Where a drafter's calls run, one after another: on a thread of its own, or on the caller's.

A drafter that computes with the target's own engine library must not have a thread: OpenMP keeps a team of threads for
each thread that ever computed, and with two teams on the same cores waiting at barriers gets slow for both. Measured
on two cores: a step of the target took 8.0 ms alone, 14.9 ms beside an idle second team, 8.7 ms where both contexts
were driven by one thread, and 9.1 ms once the other thread had ended.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("pilotfish.drafters")

REST = 1.0  # seconds without a job after which the thread ends, until the next one


class SameThread:
    """Runs every job at once, on the thread that posts it."""

    def post(self, job: Callable[[], object]) -> bool:
        """Run `job` now; True. What it raises is logged: a job reports on its own."""
        _run(job, "a drafter on the engine's thread")
        return True


class DrafterWorker:
    """Runs jobs in the order in which they were posted. One that hangs makes those behind it wait, and nobody else."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], object]) -> bool:
        """Run `job` when it is its turn; False when the system has no thread for it.

        What it raises is logged: a job reports on its own.
        """
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=f"drafter-{self._name}", daemon=True)
                try:
                    thread.start()  # it finds the job, because going to rest takes the lock
                except RuntimeError as error:
                    log.error("drafter %s: %s", self._name, error)
                    return False
                self._thread = thread
            self._jobs.put(job)
            return True

    def settle(self, timeout: float) -> bool:
        """Wait until everything posted so far was run; False when that takes longer than `timeout` seconds."""
        with self._lock:
            if self._thread is None:
                return True
            reached = threading.Event()
            self._jobs.put(reached.set)
        return reached.wait(timeout)

    @property
    def alive(self) -> bool:
        """Whether there is a thread, working or waiting."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, at most `timeout` seconds; only after `end`."""
        if thread := self._thread:
            thread.join(timeout)

    def end(self) -> None:
        """Let the thread end after the jobs it has. Nothing may be posted after that."""
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            _run(job, f"drafter {self._name}")

    def _next(self) -> Callable[[], object] | None:
        """The next job; None when the thread is to end."""
        try:
            return self._jobs.get(timeout=REST)
        except queue.Empty:
            pass
        with self._lock:
            if self._jobs.empty():
                self._thread = None
                return None
        return self._jobs.get()


def _run(job: Callable[[], object], whose: str) -> None:
    """Run a job, whatever it raises: those behind it wait for the same thread."""
    try:
        job()
    except BaseException:
        log.exception("%s: a call failed", whose)
