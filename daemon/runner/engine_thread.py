"""One thread for the engine, one queue before it, and as many answers at a time as the engine has slots.

The thread loads the model, then lets the requests that have a slot take turns: a prompt block or a round each, so that
none waits while others take two. Between two turns those that wait get the slots that became free, first come first
served; one that asks for a slot of its own waits for that, and lets others pass. A job whose client left while it
waited is dropped; one that is running learns of it before its next turn.

Every job is finished, whatever the engine or a plugin raises: with an error that the event loop can raise like any
other. Should the thread itself end without being told to, all jobs end with an error, and whoever watches `lost` ends
the process, because nothing would be answered any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken
from pilotfish.daemon.registry.containment import contained, where
from pilotfish.daemon.runner.conversation_memory import keep_at_rest
from pilotfish.daemon.runner.job import Job
from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.protocols import SpansMachines, TargetEngine

log = logging.getLogger("pilotfish.runner")

LOOK = 1.0  # seconds between looks at readers that have stalled, while nobody else has anything to do
REST = 10.0  # seconds without a request, after which what would be lost with the process is kept


class BeingAnswered(Protocol):
    """A request that is being answered: `pilotfish.daemon.core.answering.Answering`, or a test's own."""

    slot: int

    @property
    def ended(self) -> bool:
        """Whether `outcome` is to be had, so that no turn may follow."""
        ...

    def outcome(self) -> Outcome:
        """How it ended. Raises what ended it."""
        ...


A = TypeVar("A", bound=BeingAnswered)


class Generates(Protocol[A]):
    """What answers requests: `pilotfish.daemon.core.generator.Generator`, or a test's own."""

    @property
    def engine(self) -> TargetEngine:
        """The loaded target."""
        ...

    @property
    def slots(self) -> int:
        """How many requests may be answered at a time."""
        ...

    def begin(
        self,
        request: GenerationRequest,
        emit: Callable[[Sequence[OutputToken]], None],
        cancelled: Callable[[], bool],
    ) -> A:
        """Give a request a slot; see `Generator.begin`."""
        ...

    def turn(self, answerings: Sequence[A]) -> None:
        """Blocks until each of them has had a turn; see `Generator.turn`."""
        ...

    def close(self) -> None:
        """Let the drafters go, then the engine. Called once."""
        ...


@dataclass(frozen=True, slots=True)
class _Running:
    job: Job
    answering: Any  # a BeingAnswered of the generator's own kind


class EngineThread:
    """The only thread that drives the engine. `generator` is set once `start`'s future is done."""

    def __init__(
        self,
        load: Callable[[], Generates[Any]],
        finished: Callable[[Outcome, int], None] = lambda outcome, prompt_tokens: None,
    ) -> None:
        """`finished(outcome, prompt tokens)` is called on the event loop after every answer, also a cancelled one. It
        may be set later, before the first request."""
        self.generator: Generates[Any] | None = None
        self.failure = ""  # why nothing is answered any more, although nobody told the thread to end
        self._lost = asyncio.Event()  # set once there is a failure
        self._load = load
        self.finished = finished
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[Job] = deque()
        self._stirred = False  # there may be something to do
        self._stopping = threading.Event()
        self._running: list[_Running] = []  # the thread's own; others read it
        self._engaged: float | None = None  # since when the engine is at work on one thing; time.monotonic()
        self._worked = False  # since the last rest; the thread's own
        self._abandoned = False
        # A daemon thread: a forward that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def waiting(self) -> int:
        """Jobs handed in and not begun."""
        return len(self._waiting)

    @property
    def running(self) -> dict[int, GenerationRequest]:
        """What is being answered, by slot."""
        return {running.answering.slot: running.job.request for running in list(self._running)}

    @property
    def engaged(self) -> float:
        """Seconds that a beginning request, a prompt block, a round, or keeping what was said has taken so far; 0 while
        the engine has nothing to do."""
        since = self._engaged
        return time.monotonic() - since if since is not None else 0.0

    def start(self) -> asyncio.Future[None]:
        """Begin to load; the future is done when requests can be answered, or raises what loading raised.

        Where it has begun, that future.
        """
        if self._thread.ident is not None:
            return self._loaded
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
        job = Job(request, self._stir)
        with self._changed:
            accepted = not self._stopping.is_set() and not self.failure
            if accepted:
                self._waiting.append(job)
        self._stir()
        if not accepted:
            job.finish(EngineError(self.failure) if self.failure else _stopping_error())
        return job

    def cancel(self) -> None:
        """End the running answers and refuse what waits; the thread ends when it has noticed."""
        self._stopping.set()
        self._stir()
        for running in list(self._running):
            running.job.cancel()

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended, after at most `timeout` seconds; frees the engine if so, which other machines
        may keep from ever coming to an end: then False after as many seconds again. Call it once."""
        if self._abandoned:
            return False
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self.generator is None:
            return True
        engine: object = self.generator.engine
        if not (isinstance(engine, SpansMachines) and engine.far_ends):
            _free(self.generator)
            return True
        freeing = threading.Thread(target=_free, args=(self.generator,), name="freeing", daemon=True)
        freeing.start()
        freeing.join(timeout)
        return not freeing.is_alive()

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
            while self._serve(self.generator):
                pass
        except BaseException as error:  # nothing that a job does comes here
            log.critical("the engine's thread ends", exc_info=error)
            self._fail(error)

    def _serve(self, generator: Generates[Any]) -> bool:
        """Begin what can be begun, and give each a turn; False when the thread is to end."""
        while self._waiting and len(self._running) < generator.slots and (job := self._next(generator.slots)):
            self._begin(generator, job)
            with self._changed:
                self._waiting.remove(job)
        if able := [running for running in self._running if running.job.may_go_on()]:
            with self._engagement():
                generator.turn([running.answering for running in able])
            if self._abandoned:  # and it came back all the same
                return False
            for running in able:
                if running.answering.ended:
                    self._running.remove(running)
                    running.job.finish(self._outcome(running))
            return True
        return self._rest(generator)

    def _next(self, slots: int) -> Job | None:
        """The first of those that wait whose slot is free."""
        taken = self.running
        with self._changed:
            for job in self._waiting:
                slot = job.request.slot
                if slot is None or slot % slots not in taken or self._stopping.is_set() or job.cancelled():
                    return job
        return None

    def _rest(self, generator: Generates[Any]) -> bool:
        """Wait for something to do; False when there will be none."""
        with self._changed:
            patience = LOOK if self._running else REST if self._worked else None
            stirred = self._changed.wait_for(lambda: self._stirred, patience)
            self._stirred = False
            go_on = not self._stopping.is_set() or bool(self._waiting) or bool(self._running)
        if not stirred and not self._running:
            self._worked = False
            with self._engagement():  # it is read from where it was computed
                keep_at_rest(generator.engine)
        return go_on

    def _stir(self) -> None:
        with self._changed:
            self._stirred = True
            self._changed.notify()

    def _begin(self, generator: Generates[Any], job: Job) -> None:
        if self._stopping.is_set() or job.cancelled():
            job.finish(_stopping_error())
            return
        try:
            with self._engagement():
                answering = generator.begin(job.request, job.emit, job.cancelled)
        except BaseException as error:
            job.finish(_told(error))
            return
        self._running.append(_Running(job, answering))
        self._worked = True
        if self._stopping.is_set():  # since it was asked
            job.cancel()

    def _outcome(self, running: _Running) -> Outcome | BaseException:
        try:
            outcome: Outcome = running.answering.outcome()
        except BaseException as error:
            return _told(error)
        self._on_loop(lambda: self.finished(outcome, len(running.job.request.prompt)))
        return outcome

    @contextlib.contextmanager
    def _engagement(self) -> Iterator[None]:
        self._engaged = time.monotonic()
        try:
            yield
        finally:
            self._engaged = None

    def abandon(self, why: str) -> None:
        """The thread, wherever it is, will never come back from the engine's library. Safe from any thread."""
        self._abandoned = True
        self._end_all(why)

    def _fail(self, error: BaseException) -> None:
        self._end_all(f"the engine's thread has ended ({where(error)}); the model has to be loaded again")

    def _end_all(self, why: str) -> None:
        """End every job with an error: those that run, those that wait, and those still to come."""
        with self._changed:
            self.failure = self.failure or why
            left = [*(running.job for running in self._running), *self._waiting]
            self._waiting.clear()
        self._running = []
        for job in left:
            job.finish(EngineError(self.failure))
        self._on_loop(self._lost.set)

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


def _free(generator: Generates[Any]) -> None:
    try:
        generator.close()
    except BaseException:
        log.exception("the engine could not be freed")


def _told(error: BaseException) -> BaseException:
    """`error`, which the log has if it was not raised on purpose."""
    if not isinstance(error, PilotfishError):
        log.error("a request failed; the runner goes on", exc_info=error)
    return error


def _stopping_error() -> EngineError:
    return EngineError("the runner is stopping; send the request again when it is back")
