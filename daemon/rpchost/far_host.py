"""Who is served by the far end's process, and that there is one.

ggml's server takes one connection at a time and lets others wait without a word, for as long as the first one's model
is loaded; so a second near end is turned away here. For a moment it waits: a near end that looks for devices opens
and closes connections in a row, and the next may be seen before the end of the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.daemon.http.sparing_log import Sparing
from pilotfish.daemon.rpchost.far_process import FarProcess
from pilotfish.hooks.errors import EngineError

log = logging.getLogger("pilotfish.rpchost")
refusals = logging.getLogger("pilotfish.rpchost.refusals")
refusals.addFilter(Sparing())  # whoever is refused must not be able to fill a disk

PATIENCE = 2.0  # seconds that a near end waits for another one to go, and for the process to be there
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0  # seconds before the process is started again
PULSE = 5.0  # seconds between questions to the process
HANGS, HANGS_SERVING = 3.0, 60.0  # seconds without an answer after which it is ended, the second while it serves
LET_GO = 10.0  # seconds in which the process has to let go of a near end that has ended
_STEADY = 60.0  # seconds after which one that ended counts as the first that did


@dataclass(frozen=True, slots=True, eq=False)
class NearEnd:
    """A near end that is served, and since when."""

    peer: str
    since: float = field(default_factory=time.monotonic)


class FarHost:
    """`start` gives a process that serves, or raises EngineError."""

    def __init__(self, start: Callable[[], Awaitable[FarProcess]], *, patience: float = PATIENCE) -> None:
        self.instance = secrets.token_hex(8)  # whatever names and tunnels lead here
        self.sessions = 0
        self.restarts = 0
        self.about: Mapping[str, Any] = {}
        self.protocol = ""
        self._start = start
        self._patience = patience
        self._process: FarProcess | None = None
        self._served: NearEnd | None = None
        self._changed = asyncio.Event()
        self._devices: Sequence[Mapping[str, Any]] = ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """There is a process while this lasts, or soon again. Raises EngineError when the first does not start."""
        keeping = asyncio.create_task(self._keep(await self._begin()), name="keep the far end")
        asking = asyncio.create_task(self._ask_now_and_then(), name="ask the far end")
        try:
            yield
        finally:
            keeping.cancel()
            asking.cancel()
            await asyncio.gather(keeping, asking, return_exceptions=True)
            if self._process is not None:
                await self._process.stop()

    @property
    def served(self) -> NearEnd | None:
        return self._served

    @property
    def ready(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    async def devices(self) -> Sequence[Mapping[str, Any]]:
        """What it computes on, with what is free: now, or as far as is known."""
        if self._process is not None:
            self._devices = await self._process.devices()
            self._end_what_hangs()
        return self._devices

    @property
    def silent_s(self) -> float:
        """For how many seconds the process has left unanswered what it was asked; 0 where it answers."""
        return self._process.silent_s if self._process is not None else 0.0

    async def admit(self, peer: str) -> tuple[NearEnd, int] | None:
        """The process is this near end's from here on, until `leave`: at which port it is; None if it cannot be."""
        try:
            async with asyncio.timeout(self._patience):
                while self._process is None or self._served is not None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            refusals.warning("%s was turned away: %s", peer, self._why_not())
            return None
        self._served = NearEnd(peer)
        self.sessions += 1
        log.info("%s is served", peer)
        return self._served, self._process.port

    def ending(self, served: NearEnd) -> None:
        """That near end has ended, and leaves as soon as the process has let go of it."""
        seconds = 0.0 if self.silent_s > HANGS else LET_GO
        asyncio.get_running_loop().call_later(seconds, self._give_up, served)

    def leave(self, served: NearEnd) -> None:
        """That near end is gone."""
        if self._served is served:
            self._served = None
            log.info("%s is gone after %.0f s", served.peer, time.monotonic() - served.since)
            self._end_what_hangs()
            self._changed.set()

    def _give_up(self, served: NearEnd) -> None:
        if self._served is served:
            self._end(f"does not let {served.peer} go, which has ended")

    async def _ask_now_and_then(self) -> None:
        """So that no near end meets a process that hangs. One that is served can end unseen, behind what it sent."""
        while True:
            await asyncio.sleep(PULSE)
            await self.devices()

    def _end_what_hangs(self) -> None:
        """Near ends have deadlines of their own; the longer time is for those that cannot be seen to end."""
        if (silent := self.silent_s) > (HANGS_SERVING if self._served else HANGS):
            self._end(f"has not answered for {silent:.0f} s")

    def _end(self, why: str) -> None:
        """So that another one is started."""
        if self._process is not None:
            log.warning("the process that computes %s: it is ended", why)
            self._process.kill()
            self._process = None

    def _why_not(self) -> str:
        return f"{self._served.peer} is served" if self._served else "the process that computes is not up again"

    async def _begin(self) -> FarProcess:
        process = await self._start()
        self.about, self.protocol, self._process = process.about, process.protocol, process
        self._changed.set()
        return process

    async def _keep(self, process: FarProcess) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            how = await process.ended()
            self._process = None
            pause = _FIRST_PAUSE if time.monotonic() - began > _STEADY else min(2 * pause, _LONGEST_PAUSE)
            log.warning("the process that computes %s; it is started again in %.1f s", how, pause)
            process, pause = await self._begin_again(pause)

    async def _begin_again(self, pause: float) -> tuple[FarProcess, float]:
        """The next process, after that many seconds, or after more: how many they were in the end."""
        while True:
            await asyncio.sleep(pause)
            self.restarts += 1
            try:
                return await self._begin(), pause
            except (EngineError, OSError) as error:
                pause = min(2 * pause, _LONGEST_PAUSE)
                log.warning("%s; the next try is in %.1f s", error, pause)
