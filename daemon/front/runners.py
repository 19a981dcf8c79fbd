"""Which runners are up: started on demand, shared, kept alive for a while, replaced, and ended.

Theory of operation. A *slot* is one model's place in memory. It loads (`ready` is pending), serves any number of
leases, idles until its keep-alive is over, and closes; it stays in the table until its process is gone, so that the
number of models in memory never exceeds the limit. Whoever wants a runner loops: take the slot if it fits, make room
if there is none, otherwise wait for any slot to change. One slot is loaded once however many requests want it, and a
request that needs another launch (a new `num_ctx`) drains the slot first: later requests queue behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.front.durations import FOREVER
from pilotfish.daemon.front.errors import RunnerGone, StatusError
from pilotfish.daemon.front.options import RunnerOptions
from pilotfish.daemon.front.runner_client import ConnectionLost, RunnerClient, new_session
from pilotfish.daemon.front.settings import FrontSettings
from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.ports import free_port

log = logging.getLogger("pilotfish.front")

_PROGRESS = 10.0  # seconds between lines about a slow load


@dataclass(slots=True, eq=False)
class Slot:
    """One model's place in memory."""

    model: ServedModel
    launch: RunnerOptions
    keep_alive: float
    ready: asyncio.Task[ChildServer] = field(init=False)
    leases: int = 0
    draining: bool = False
    closing: asyncio.Task[None] | None = None
    expires_at: float = math.inf  # time.time()
    timer: asyncio.TimerHandle | None = None

    @property
    def process(self) -> ChildServer | None:
        """The loaded runner; None while loading or when loading failed."""
        if not self.ready.done() or self.ready.cancelled() or self.ready.exception():
            return None
        return self.ready.result()

    @property
    def dead(self) -> bool:
        """Loading failed, or the process has ended by itself."""
        return self.ready.done() and (self.process is None or not self.process.alive)


@dataclass(frozen=True, slots=True)
class Lease:
    """A loaded runner, for the time of one request."""

    client: RunnerClient
    launch: RunnerOptions


@dataclass(frozen=True, slots=True)
class Loaded:
    """One entry of `/api/ps`. `expires_at` is seconds since the epoch, FOREVER when it stays."""

    model: ServedModel
    pid: int
    num_ctx: int
    expires_at: float


class Runners:
    """The table of slots. Every method runs on the event loop; `aclose` ends all runners."""

    def __init__(self, settings: FrontSettings) -> None:
        self._settings = settings
        self._slots: dict[str, Slot] = {}
        self._changed = asyncio.Condition()
        self._session = new_session()
        self._waiting = 0  # requests that have no runner yet
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def lease(self, model: ServedModel, launch: RunnerOptions, keep_alive: float | None) -> AsyncIterator[Lease]:
        """A runner of `model` started with `launch`, loaded first if need be, kept for `keep_alive` seconds after.

        Without a `keep_alive` it stays as long as was last asked for since it was loaded, or as the settings say.
        Raises RunnerGone when it cannot be loaded, with its last words, or when it ends during the request, and
        StatusError when too many requests wait for a load already.
        """
        slot, process = await self._awaited(model, launch, keep_alive)
        try:
            yield Lease(RunnerClient(self._session, process.port), slot.launch)
        except ConnectionLost as error:
            words = await process.last_words()
            slot.draining = True  # whatever is wrong with it, the next request gets a new one
            raise RunnerGone(
                f"the runner of '{model.short}' has unexpectedly stopped; the next request starts it again ({words})"
            ) from error
        finally:
            self._release(slot)

    async def unload(self, model: ServedModel) -> None:
        """End the model's runner as soon as no request uses it."""
        if slot := self._slots.get(model.key):
            slot.keep_alive = 0.0
            slot.expires_at = time.time()
            if slot.leases == 0:
                self._close(slot)

    def loaded(self) -> list[Loaded]:
        """What is loaded now, longest-lived first."""
        entries = [
            Loaded(slot.model, slot.process.pid, slot.launch.num_ctx, slot.expires_at)
            for slot in self._slots.values()
            if slot.closing is None and not slot.dead and slot.process is not None
        ]
        return sorted(entries, key=lambda entry: -entry.expires_at)

    async def aclose(self) -> None:
        """End every runner and wait for it."""
        for slot in list(self._slots.values()):
            self._close(slot)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _awaited(
        self, model: ServedModel, launch: RunnerOptions, keep_alive: float | None
    ) -> tuple[Slot, ChildServer]:
        """As `_loaded`, unless the queue is full: who finds its model loaded does not stand in it."""
        if self._waiting >= self._settings.max_queue and not self._at_hand(model, launch):
            raise StatusError(503, "server busy, please try again.  maximum pending requests exceeded")
        self._waiting += 1
        try:
            return await self._loaded(model, launch, keep_alive)
        finally:
            self._waiting -= 1

    def _at_hand(self, model: ServedModel, launch: RunnerOptions) -> bool:
        slot = self._slots.get(model.key)
        if slot is None or slot.draining or slot.closing is not None or not slot.launch.fits(launch):
            return False
        return slot.process is not None

    async def _loaded(
        self, model: ServedModel, launch: RunnerOptions, keep_alive: float | None
    ) -> tuple[Slot, ChildServer]:
        """A slot taken and its runner up. One that has died unnoticed since its last answer is replaced once."""
        for retry in (True, False):
            slot = await self._take(model, launch, keep_alive)
            try:
                process = await asyncio.shield(slot.ready)
                if not retry or await RunnerClient(self._session, process.port).healthy():
                    return slot, process
                slot.draining = True
            except BaseException:
                self._release(slot)
                raise
            self._release(slot)
        raise AssertionError("the second try returns or raises")

    async def _take(self, model: ServedModel, launch: RunnerOptions, keep_alive: float | None) -> Slot:
        async with self._changed:
            while (slot := self._usable(model, launch)) is None:
                await self._changed.wait()
            slot.leases += 1
            if keep_alive is not None:
                slot.keep_alive = keep_alive
            slot.expires_at = time.time() + slot.keep_alive
            if slot.timer is not None:
                slot.timer.cancel()
                slot.timer = None
            return slot

    def _usable(self, model: ServedModel, launch: RunnerOptions) -> Slot | None:
        """A slot for this launch, started if there is room; else None, after making room as far as possible."""
        slot = self._slots.get(model.key)
        if slot is None:
            return self._open(model, launch) if self._room() else None
        if slot.closing is not None or slot.draining:
            return None
        if slot.launch.fits(launch) and not slot.dead:
            return slot
        slot.draining = True
        if slot.leases == 0:
            self._close(slot)
        return None

    def _room(self) -> bool:
        if len(self._slots) < self._settings.max_loaded:
            return True
        idle = [slot for slot in self._slots.values() if slot.leases == 0 and slot.closing is None]
        closing = any(slot.closing is not None for slot in self._slots.values())
        if idle and not closing:
            self._close(min(idle, key=lambda slot: slot.expires_at))
        return False

    def _open(self, model: ServedModel, launch: RunnerOptions) -> Slot:
        slot = Slot(model, launch, self._settings.keep_alive)
        slot.ready = asyncio.create_task(self._load(model, launch), name=f"load {model.short}")
        self._slots[model.key] = slot
        return slot

    def _release(self, slot: Slot) -> None:
        slot.leases -= 1
        slot.expires_at = time.time() + slot.keep_alive
        if slot.leases == 0 and slot.closing is None:
            if slot.dead or slot.draining or slot.keep_alive <= 0:
                self._close(slot)
            elif slot.keep_alive != FOREVER:
                slot.timer = asyncio.get_running_loop().call_later(slot.keep_alive, self._close, slot)
        self._announce()

    def _close(self, slot: Slot) -> None:
        if slot.closing is None:
            slot.closing = asyncio.create_task(self._end(slot), name=f"unload {slot.model.short}")
            self._tasks.add(slot.closing)
            slot.closing.add_done_callback(self._tasks.discard)

    async def _end(self, slot: Slot) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
        slot.ready.cancel()  # no effect on a finished load
        await asyncio.gather(slot.ready, return_exceptions=True)
        if slot.process is not None:
            await slot.process.stop()
            log.info("unloaded %s", slot.model.short)
        if self._slots.get(slot.model.key) is slot:
            del self._slots[slot.model.key]
        async with self._changed:
            self._changed.notify_all()

    def _announce(self) -> None:
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _load(self, model: ServedModel, launch: RunnerOptions) -> ChildServer:
        started = time.monotonic()
        port = free_port()
        try:
            process = await ChildServer.start(self._command(model, launch, port), port, "runner")
        except OSError as error:
            raise RunnerGone(f"the runner of '{model.short}' cannot be started: {error}") from error
        try:
            async with _telling(model, started):
                await self._until_healthy(process, model)
        except BaseException:
            await process.stop()
            raise
        log.info("loaded %s in %.2f s (context %d)", model.short, time.monotonic() - started, launch.num_ctx)
        return process

    def _command(self, model: ServedModel, launch: RunnerOptions, port: int) -> list[str]:
        command = list(self._settings.runner) or [sys.executable, "-m", "pilotfish.daemon.runner.main"]
        command += ["--model", str(model.weights), "--port", str(port), "--host", "127.0.0.1"]
        return [*command, *launch.arguments(), "--no-webui", "--offline", *self._settings.runner_args]

    async def _until_healthy(self, process: ChildServer, model: ServedModel) -> None:
        patience = self._settings.load_timeout
        if await process.comes_up(RunnerClient(self._session, process.port).healthy, patience):
            return
        if not process.alive:
            raise RunnerGone(f"the runner of '{model.short}' could not load it: {await process.last_words()}")
        raise RunnerGone(
            f"the runner of '{model.short}' gave no sign of life for {patience:.0f} s while loading; raise "
            f"PILOTFISH_LOAD_TIMEOUT if it needs longer ({await process.last_words()})"
        )


@contextlib.asynccontextmanager
async def _telling(model: ServedModel, started: float) -> AsyncIterator[None]:
    """A line in the log now and then, while a load takes long."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(_PROGRESS)
            log.info("still loading %s after %.0f s", model.short, time.monotonic() - started)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
