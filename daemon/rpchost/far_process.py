"""The process that computes for a near end: started, asked what it has free, and ended with this one.

`pilotfish.hooks.far_end` says how it talks. It leads a session of its own, as all children do, and its pipes carry
calls: it ends with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pilotfish.daemon.processes.last_words import LastWords, how_it_ended
from pilotfish.daemon.rpchost.hello import protocol_at
from pilotfish.hooks.errors import EngineError

log = logging.getLogger("pilotfish.rpchost")

ANSWER_SECONDS = 1.0  # what it said before counts where it does not answer by then
START_SECONDS = 120.0  # a bound on failure: a driver that was not used since the machine started takes some of them
_POLL_SECONDS = 0.02
_LONGEST_LINE = 1 << 20  # bytes


class FarProcess:
    """A process that serves. Everything here belongs to the event loop that started it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self.about: Mapping[str, Any] = {}
        self.protocol = ""
        self._process = process
        self._words = LastWords(f"far end {process.pid}")
        self._devices: Sequence[Mapping[str, Any]] = ()
        self._told = asyncio.Event()
        self._silent_since: float | None = None
        self._listening = asyncio.gather(self._hear_answers(), self._hear_words(), return_exceptions=True)

    @classmethod
    async def start(cls, command: Sequence[str], port: int) -> FarProcess:
        """Start `command`, which serves at `port`, and return when it does. Raises EngineError with its last words."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,
        )
        found = cls(process, port)
        try:
            async with asyncio.timeout(START_SECONDS):
                await found._come_up()
        except TimeoutError:
            await found.stop()
            late = f"the far end's process did not answer within {START_SECONDS:g} s of its start, and was ended"
            raise EngineError(": ".join([late, *found._words.lines])) from None
        except BaseException:
            await found.stop()
            raise
        log.debug("far end %d serves at port %d", process.pid, port)
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    async def devices(self) -> Sequence[Mapping[str, Any]]:
        """What it computes on and has free: now, or when it last answered."""
        asked = time.monotonic()
        self._told.clear()
        try:
            assert self._process.stdin is not None  # asked for in start
            self._process.stdin.write(b"\n")
            await asyncio.wait_for(self._told.wait(), ANSWER_SECONDS)
        except (OSError, TimeoutError):
            self._silent_since = self._silent_since or asked
        return self._devices

    @property
    def silent_s(self) -> float:
        """For how many seconds it has left unanswered what it was asked; 0 where it answers, as while it computes."""
        return time.monotonic() - self._silent_since if self._silent_since else 0.0

    async def ended(self) -> str:
        """Return when it has ended: how it did, and its last words."""
        await asyncio.shield(self._listening)  # others wait for it, too
        how = how_it_ended(await self._process.wait())
        return ": ".join([how, *self._words.lines])

    def kill(self) -> None:
        """End it at once, whatever it is doing: it keeps nothing that would be lost."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self) -> None:
        """The same; return when it has ended."""
        self.kill()
        await self.ended()

    async def _come_up(self) -> None:
        """Return when it has said what it has, and its server answers."""
        ending = asyncio.ensure_future(self.ended())
        telling = asyncio.ensure_future(self._told.wait())
        try:
            await asyncio.wait((ending, telling), return_when=asyncio.FIRST_COMPLETED)
            while not ending.done():
                with contextlib.suppress(OSError, EOFError, ValueError):
                    self.protocol = await protocol_at(self.port)
                    return
                await asyncio.sleep(_POLL_SECONDS)
            raise EngineError(f"the far end's process {ending.result()}")
        finally:
            telling.cancel()
            ending.cancel()

    async def _hear_answers(self) -> None:
        assert self._process.stdout is not None  # asked for in start
        async for line in self._process.stdout:
            said = json.loads(line)
            self.about = self.about or said
            self._devices = said["devices"]
            self._silent_since = None
            self._told.set()

    async def _hear_words(self) -> None:
        assert self._process.stderr is not None  # asked for in start
        while data := await self._process.stderr.read(1 << 16):
            self._words.hear(data)
        self._words.end()
