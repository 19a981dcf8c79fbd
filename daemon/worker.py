"""A thread that runs one drafter's calls, one after another, for as long as the drafter is in use."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("pilotfish.drafters")


class Worker:
    """Runs jobs in the order in which they were posted. One that hangs makes those behind it wait, and nobody else."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], object]) -> None:
        """Run `job` when it is its turn. What it raises is logged: a job reports on its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"drafter-{self._name}", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def settle(self, timeout: float) -> bool:
        """Wait until everything posted so far was run; False when that takes longer than `timeout` seconds."""
        if self._thread is None:
            return True
        reached = threading.Event()
        self._jobs.put(reached.set)
        return reached.wait(timeout)

    @property
    def alive(self) -> bool:
        """Whether there is a thread, working or waiting."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, at most `timeout` seconds; only after `end`."""
        if self._thread is not None:
            self._thread.join(timeout)

    def end(self) -> None:
        """Let the thread end after the jobs it has. Nothing may be posted after that."""
        if self._thread is not None:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("drafter %s: a call failed", self._name)
