"""One thread for the engine, one queue before it, and a bounded way back to the event loop.

The thread loads the model, then answers jobs one after the other, first come first served. A job whose client left
while it waited is dropped; one that is running learns of it between two forwards. What it emits goes into the job's
backlog, which the event loop empties; when the backlog is full the engine waits for the reader, and gives a reader
up that takes nothing for a while, so that one stalled client neither fills the memory nor keeps the slot.

Every job is finished, whatever the engine or a plugin raises: with an error that the event loop can raise like any
other. Should the thread itself end without being told to, all jobs end with an error, and whoever watches `lost` ends
the process, because nothing would be answered any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken
from pilotfish.daemon.registry.containment import contained, where
from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.protocols import TargetEngine

log = logging.getLogger("pilotfish.runner")

MAX_BACKLOG = 4096  # output_tokens that the reader has not taken
STALLED_AFTER = 30.0  # seconds without the reader taking anything from a full backlog


class Generates(Protocol):
    """What answers requests: `pilotfish.daemon.core.generator.Generator`, or a test's own."""

    @property
    def engine(self) -> TargetEngine:
        """The loaded target."""
        ...

    def generate(
        self,
        request: GenerationRequest,
        emit: Callable[[Sequence[OutputToken]], None],
        cancelled: Callable[[], bool],
    ) -> Outcome:
        """Blocks until the answer is complete; see `Generator.generate`."""
        ...

    def close(self) -> None:
        """Let the drafters go, then the engine. Called once."""
        ...


class Job:
    """One generation on its way. `next`, `cancel` and `outcome` belong to the event loop, the rest to the engine."""

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._room = threading.Condition()
        self._backlog: list[OutputToken] = []
        self._result: Outcome | Exception | None = None
        self._cancelled = False

    async def next(self) -> list[OutputToken] | None:
        """What was emitted since the last call, at least one output_token; None when there is no more."""
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
        with self._room:
            self._cancelled = True
            self._room.notify()

    def cancelled(self) -> bool:
        """Whether the client left."""
        return self._cancelled

    def emit(self, output_tokens: Sequence[OutputToken]) -> None:
        """Hand output_tokens over; waits while the backlog is full."""
        with self._room:
            while len(self._backlog) >= MAX_BACKLOG and not self._cancelled:
                if not self._room.wait(STALLED_AFTER):
                    log.warning("a client has not read for %.0f s; its request is ended", STALLED_AFTER)
                    self._cancelled = True
            idle = not self._backlog
            self._backlog.extend(output_tokens)
        if idle:
            self._wake()

    def finish(self, result: Outcome | BaseException) -> None:
        """The last word; nothing may be emitted afterwards."""
        with self._room:
            self._result = contained(result) if isinstance(result, BaseException) else result
        self._wake()

    def _take(self) -> list[OutputToken]:
        with self._room:
            batch, self._backlog = self._backlog, []
            if self._result is None:
                self._arrived.clear()
            self._room.notify()
        return batch

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody listens any more
            self._loop.call_soon_threadsafe(self._arrived.set)


class EngineThread:
    """The only thread that drives the engine. `generator` is set once `start`'s future is done."""

    def __init__(self, load: Callable[[], Generates], finished: Callable[[Outcome, int], None]) -> None:
        """`finished(outcome, prompt tokens)` is called on the event loop after every answer, also a cancelled one."""
        self.generator: Generates | None = None
        self.waiting = 0  # jobs handed in and not begun
        self.running: Job | None = None
        self.failure = ""  # why nothing is answered any more, although nobody told the thread to end
        self._lost = asyncio.Event()  # set once there is a failure
        self._load = load
        self._finished = finished
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # A daemon thread: a forward that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._stopping = False

    def start(self) -> asyncio.Future[None]:
        """Begin to load; the future is done when requests can be answered, or raises what loading raised."""
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        return self._loaded

    async def lost(self) -> str:
        """Wait until the thread has ended without being told to; `failure`."""
        await self._lost.wait()
        return self.failure

    def submit(self, request: GenerationRequest) -> Job:
        """Queue a request."""
        job = Job(request)
        with self._lock:
            accepted = not self._stopping and not self.failure
            if accepted:
                self.waiting += 1
                self._jobs.put(job)
        if not accepted:
            job.finish(EngineError(self.failure) if self.failure else _stopping_error())
        return job

    def cancel(self) -> None:
        """End the running answer and refuse what waits; the thread ends when it has noticed."""
        self._stopping = True
        if job := self.running:
            job.cancel()
        self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended, after at most `timeout` seconds; frees the engine if so. Call it once."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self.generator is not None:
            try:
                self.generator.close()
            except BaseException:
                log.exception("the engine could not be freed")
        return True

    def _run(self) -> None:
        try:
            self.generator = self._load()
        except BaseException as error:
            safe = contained(error)
            if safe is not error:
                log.error("loading failed", exc_info=error)
            self._tell(safe)
            return
        self._tell(None)
        try:
            while (job := self._jobs.get()) is not None:
                self.running = job
                with self._lock:
                    self.waiting -= 1
                job.finish(self._answer(self.generator, job))
                self.running = None
        except BaseException as error:  # nothing that a job does comes here
            log.critical("the engine's thread ends", exc_info=error)
            self._fail(error)

    def _answer(self, generator: Generates, job: Job) -> Outcome | BaseException:
        if self._stopping or job.cancelled():
            return _stopping_error()
        try:
            outcome = generator.generate(job.request, job.emit, job.cancelled)
            self._on_loop(lambda: self._finished(outcome, len(job.request.prompt)))
            return outcome
        except PilotfishError as error:
            return error
        except BaseException as error:
            log.exception("a request failed; the runner goes on")
            return error

    def _fail(self, error: BaseException) -> None:
        """End every job with an error: the one that runs, those that wait, and those still to come."""
        with self._lock:
            self.failure = f"the engine's thread has ended ({where(error)}); the model has to be loaded again"
            left = [self.running, *iter(self._next_waiting, None)]
            self.running, self.waiting = None, 0
        for job in left:
            if job is not None:
                job.finish(EngineError(self.failure))
        self._on_loop(self._lost.set)

    def _next_waiting(self) -> Job | None:
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            return None

    def _tell(self, error: Exception | None) -> None:
        def tell() -> None:
            if self._loaded.cancelled():
                return
            if error is None:
                self._loaded.set_result(None)
            else:
                self._loaded.set_exception(error)

        self._on_loop(tell)

    def _on_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: the process is ending
            self._loop.call_soon_threadsafe(call)


def _stopping_error() -> EngineError:
    return EngineError("the runner is stopping; send the request again when it is back")
