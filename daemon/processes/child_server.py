"""A server that this process starts on a port of this machine, watched from an event loop.

Its output is read, logged and remembered, so that it never waits for a reader and the reason is at hand when it fails.
It leads a session of its own: a Ctrl-C that is meant for this process does not reach it, this process ends it. And it
has a pipe for its standard input that is never written to, and closes when this process ends, however that ends: a
program of ours notices (`parent_death`), any other one is started through `tied`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pilotfish.daemon.processes.last_words import LastWords, how_it_ended
from pilotfish.daemon.processes.parent_death import tied_environment

log = logging.getLogger("pilotfish.processes")

STOP_SECONDS = 5.0  # from SIGTERM to SIGKILL
NOTICE_SECONDS = 1.0  # from a broken connection to the end of the process, if that was the reason
_POLL_SECONDS = 0.02


class ChildServer:
    """Everything here belongs to the event loop that started it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, name: str) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._name = f"{name} {process.pid}"
        self._words = LastWords(self._name)
        self._last_sign_of_life = time.monotonic()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, command: Sequence[str], port: int, name: str, environment: Mapping[str, str] | None = None
    ) -> ChildServer:
        """Start `command`, which is told of `port` in its own way; `name` is what the log calls it.

        Without an `environment` it has that of a tied child. Raises OSError when the command cannot be run.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=tied_environment() if environment is None else environment,
            start_new_session=True,  # not process_group, which uvloop does not have
        )
        log.debug("started %s %d: %s", name, process.pid, " ".join(command))
        return cls(process, port, name)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, as far as is known; negative for the signal that ended it."""
        return self._process.returncode

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    @property
    def said(self) -> str:
        """Its last lines so far."""
        return "\n".join(self._words.lines)

    async def comes_up(self, healthy: Callable[[], Awaitable[bool]], silence: float = math.inf) -> bool:
        """Wait until it is `healthy`; False when it ends instead, or says nothing for `silence` seconds."""
        while not await healthy():
            if not self.alive or time.monotonic() - self._last_sign_of_life > silence:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def end_noticed(self) -> None:
        """Return when its end is known here, and all that it said; or after a moment, if it lives on."""
        ending = asyncio.gather(self.wait(), asyncio.shield(self._reader))
        with contextlib.suppress(TimeoutError):  # a child of it may hold the pipe open, too
            await asyncio.wait_for(ending, NOTICE_SECONDS)

    async def last_words(self) -> str:
        """How it ended and what it said last, for an error message."""
        await self.end_noticed()
        how = how_it_ended(self.exit_code, "exit code")
        return f"{how}: {self.said}" if self.said else how

    async def wait(self) -> None:
        """Until it has ended. (asyncio's own wait lasts until its output ends, which a child of it may hold open.)"""
        while self.alive:  # noqa: ASYNC110 - asyncio notifies nobody of this moment
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL after a grace. Returns when it is gone; safe to call twice."""
        if self.alive:
            await self._end()
        await self._close_pipes()

    async def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self.wait(), STOP_SECONDS)
        except TimeoutError:
            log.warning("%s ignored SIGTERM for %.0f s; it is killed", self._name, STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self.wait()

    async def _close_pipes(self) -> None:
        assert self._process.stdin is not None  # asked for in start
        self._process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.wait_closed()
        await asyncio.wait((self._reader,), timeout=NOTICE_SECONDS)  # a child of it may hold its output open
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None  # asked for in start
        while data := await self._process.stdout.read(1 << 16):
            self._last_sign_of_life = time.monotonic()
            self._words.hear(data)
        self._words.end()
