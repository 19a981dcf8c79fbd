"""A stock llama-server beside the runner, for requests that the runner does not serve itself.

It has the flags and the environment that Ollama meant for it, and a port of its own. It starts with the first request
that needs it, is shared by those that come while it runs, and ends when nobody has needed it for a while: until then
the model is in memory twice. One that crashed is replaced by the next request. It does not outlive the runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

import aiohttp

from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.last_words import how_it_ended
from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.processes.tied import tied_command
from pilotfish.daemon.runner.floor import StockServer
from pilotfish.hooks.errors import EngineError

log = logging.getLogger("pilotfish.sidecar")

IDLE_SECONDS = 120.0


class Sidecar:
    """The stock server beside one runner. Everything here belongs to the event loop."""

    def __init__(self, stock: StockServer, argv: Sequence[str], idle_seconds: float = IDLE_SECONDS) -> None:
        """`argv` are the runner's own arguments; nothing is started yet."""
        self._stock = stock
        self._argv = argv
        self._idle_seconds = idle_seconds
        self._process: asyncio.Task[ChildServer] | None = None  # the one that runs or starts
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._users = 0
        self._session: aiohttp.ClientSession | None = None

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
    async def running(self) -> AsyncIterator[ChildServer]:
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

    async def _ready(self) -> ChildServer:
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

    async def _start(self) -> ChildServer:
        port = free_port()
        command = tied_command([self._stock.program, *on_port(self._argv, port)])
        try:
            process = await ChildServer.start(command, port, "stock llama-server", self._stock.environment)
        except OSError as error:
            raise EngineError(f"the stock llama-server cannot be started: {error}") from error
        log.info("a stock llama-server starts beside this runner (process %d, port %d)", process.pid, port)
        try:
            await self._until_it_answers(process)
        except BaseException:
            await process.stop()
            raise
        return process

    async def _until_it_answers(self, process: ChildServer) -> None:
        async def healthy() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                async with self.session.get(f"{process.url}/health") as answer:
                    return answer.status == 200
            return False

        if not await process.comes_up(healthy):
            await process.end_noticed()
            how = how_it_ended(process.exit_code)
            raise EngineError(f"the stock llama-server {how} before it was ready:\n{process.said}")


def _is_over(starting: asyncio.Task[ChildServer]) -> bool:
    if not starting.done():
        return False
    return starting.cancelled() or starting.exception() is not None or not starting.result().alive


async def _stop(starting: asyncio.Task[ChildServer]) -> None:
    """End a server, or its start, which ends it then."""
    starting.cancel()
    await asyncio.wait((starting,))
    if not starting.cancelled() and starting.exception() is None:
        process = starting.result()
        await process.stop()
        log.info("the stock llama-server beside this runner was ended (process %d)", process.pid)


def on_port(argv: Sequence[str], port: int) -> list[str]:
    """The same arguments, for another port of this machine only."""
    words = list(argv)
    for flag, value in (("--port", str(port)), ("--host", "127.0.0.1")):
        if flag in words[:-1]:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    return words
