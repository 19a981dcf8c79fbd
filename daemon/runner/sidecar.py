"""A stock llama-server beside the runner, for requests that the runner does not serve itself.

It has the flags and the environment that Ollama meant for it, and a port of its own. It starts with the first request
that needs it, is shared by those that come while it runs, and ends when nobody has needed it for a while: until then
the model is in memory twice. One that crashed is replaced by the next request. It does not outlive the runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from pilotfish.daemon.processes import tied
from pilotfish.hooks.errors import EngineError
from pilotfish.ollama_overlay.stock import stock_environment, stock_server

log = logging.getLogger("pilotfish.sidecar")

IDLE_SECONDS = 120.0
STOP_SECONDS = 5.0  # from SIGTERM to SIGKILL
POLL_SECONDS = 0.05
NOTICE_SECONDS = 1.0  # from a broken connection to the end of the process, if that was the reason
TAIL = 4096  # bytes of its output that are kept for the case that it fails
LAST_LINES = 5
_TIED = Path(tied.__file__)


@dataclass(slots=True)
class Process:
    """One stock server. `url` is its address; `tail` the end of what it said so far."""

    handle: asyncio.subprocess.Process
    url: str
    tail: bytearray = field(default_factory=bytearray)
    reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return self.handle.returncode is None

    def last_words(self) -> str:
        """Its last lines, where the reason stands when it failed."""
        lines = [line.strip() for line in bytes(self.tail).decode("utf-8", "replace").splitlines()]
        return "\n".join([line for line in lines if line][-LAST_LINES:])

    async def read(self) -> None:
        """Take its output away, so that it is never kept waiting for a reader."""
        assert self.handle.stdout is not None  # a pipe
        while data := await self.handle.stdout.read(1 << 16):
            self.tail += data
            del self.tail[:-TAIL]

    async def end_noticed(self) -> None:
        """Return when its end is known here, and all that it said; or after a moment, if it lives on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOTICE_SECONDS):
                await self.handle.wait()
                if self.reading is not None:
                    await asyncio.shield(self.reading)

    async def stop(self) -> None:
        """End it, and return when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.handle.terminate()
        try:
            await asyncio.wait_for(self.handle.wait(), STOP_SECONDS)
        except TimeoutError:
            self.handle.kill()
            await self.handle.wait()
        if self.reading is not None:
            await self.reading


class Sidecar:
    """The stock server beside one runner. Everything here belongs to the event loop."""

    def __init__(
        self,
        server: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`argv` are the runner's own arguments; nothing is started yet."""
        self._server = server
        self._argv = argv
        self._environment = environment
        self._idle_seconds = idle_seconds
        self._process: asyncio.Task[Process] | None = None  # the one that runs or starts
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._users = 0
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of_this_process(cls, argv: Sequence[str], idle_seconds: float) -> Sidecar | None:
        """For a runner that the shim started; None for any other one, which knows of no stock server."""
        server = stock_server()
        return None if server is None else cls(server, argv, stock_environment(), idle_seconds)

    @property
    def active(self) -> bool:
        """Whether a request is with it."""
        return self._users > 0

    def idle_after(self, seconds: float) -> None:
        """From now on it ends when nobody needed it for so long. An idle time that runs begins anew."""
        self._idle_seconds = seconds
        if self._timer is not None and not self.active:
            self._await_idleness()

    @property
    def session(self) -> aiohttp.ClientSession:
        """A client that changes nothing on the way and keeps no connection."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """The server, ready for requests while the block lasts. Raises EngineError with its own last words."""
        self._users += 1
        self._stop_waiting()
        try:
            yield await self._ready()
        finally:
            self._users -= 1
            if self._users == 0:
                self._await_idleness()

    async def close(self) -> None:
        """End what runs. Nothing may use it any more."""
        self._stop_waiting()
        self._end()
        await asyncio.gather(*self._ending)
        if self._session is not None:
            await self._session.close()

    async def _ready(self) -> Process:
        if self._process is None or _is_over(self._process):
            self._process = asyncio.create_task(self._start())
        # Shielded: others may wait for the same start, and the next request will be glad of it.
        return await asyncio.shield(self._process)

    def _await_idleness(self) -> None:
        self._stop_waiting()
        self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        starting, self._process = self._process, None
        if starting is not None:
            task = asyncio.create_task(_stop(starting))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _start(self) -> Process:
        port = free_port()
        words = [sys.executable, "-IS", str(_TIED), str(os.getpid()), self._server, *on_port(self._argv, port)]
        try:
            handle = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
            )
        except OSError as error:
            raise EngineError(f"the stock llama-server cannot be started: {error}") from error
        process = Process(handle, f"http://127.0.0.1:{port}")
        process.reading = asyncio.create_task(process.read())
        log.info("a stock llama-server starts beside this runner (process %d, port %d)", handle.pid, port)
        try:
            await self._wait_until_it_answers(process)
        except BaseException:
            await process.stop()
            raise
        return process

    async def _wait_until_it_answers(self, process: Process) -> None:
        while process.alive:
            with contextlib.suppress(aiohttp.ClientError):
                async with self.session.get(f"{process.url}/health") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(POLL_SECONDS)
        await process.end_noticed()
        code = process.handle.returncode
        raise EngineError(f"the stock llama-server ended with code {code} before it was ready:\n{process.last_words()}")


def _is_over(starting: asyncio.Task[Process]) -> bool:
    if not starting.done():
        return False
    return starting.cancelled() or starting.exception() is not None or not starting.result().alive


async def _stop(starting: asyncio.Task[Process]) -> None:
    """End a server, or its start, which ends it then."""
    starting.cancel()
    await asyncio.wait((starting,))
    if not starting.cancelled() and starting.exception() is None:
        process = starting.result()
        await process.stop()
        log.info("the stock llama-server beside this runner was ended (process %d)", process.handle.pid)


def on_port(argv: Sequence[str], port: int) -> list[str]:
    """The same arguments, for another port of this machine only."""
    words = list(argv)
    for flag, value in (("--port", str(port)), ("--host", "127.0.0.1")):
        if flag in words[:-1]:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    return words


def free_port() -> int:
    """A port of this machine that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
