"""Serving HTTP to whoever connects: the front, the runner, the draft host and the daemon all do it here.

Connections are accepted here and not by the event loop's own server: out of descriptors, asyncio's writes a traceback
for every try, and uvloop's hangs up on whoever waits, without a word. There is a limit on connections; at the limit,
one that waits for a request to be sent has to go, and is told from those whose requests are read or answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from aiohttp import web

from pilotfish.daemon.http.connection import ORDINARY, Connection, Limits, MakeHTTP, log, tell_connection
from pilotfish.daemon.http.switching import Relaying, Switch

MOST = 512  # connections: as many requests as Ollama queues
_RETRY = 0.2  # seconds until the next try when nothing could be accepted


@contextlib.asynccontextmanager
async def serving(
    app: web.Application,
    listening: Sequence[socket.socket],
    limits: Limits = ORDINARY,
    *,
    tls: ssl.SSLContext | None = None,
    handler_cancellation: bool = True,
    shutdown_timeout: float = 2.0,
    relaying: Relaying | None = None,
    doorway: Callable[[MakeHTTP], MakeHTTP] | None = None,
) -> AsyncIterator[None]:
    """`app`, answering on these sockets, which are closed at the end. Requests under way then get
    `shutdown_timeout` seconds. With `handler_cancellation` a client that leaves cancels its request. With `relaying`
    only some requests are for `app`, with a `doorway` only some connections: it gives the protocol of each."""
    app.middlewares.insert(0, tell_connection)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=log,
        handler_cancellation=handler_cancellation,
        keepalive_timeout=limits.keep_alive,
        shutdown_timeout=shutdown_timeout,
    )
    try:
        await runner.setup()
        assert runner.server is not None  # there is one after `setup`
        http: MakeHTTP = runner.server
        if relaying is not None:
            http = partial(Switch, runner.server, relaying)
        if doorway is not None:
            http = doorway(http)
        async with _Door(http, limits, tls) as door:
            try:
                async with door.accepting(listening):
                    yield
            finally:
                await runner.cleanup()
    finally:
        for listener in listening:
            listener.close()


class _Door:
    """Lets connections in, as many as there is room for. Those that are left at the end are cut off."""

    def __init__(self, http: MakeHTTP, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._http = http
        self._limits = limits
        self._tls = tls
        self._most = limits.connections or _room()
        self._inside: dict[asyncio.Task[None], Connection] = {}

    async def __aenter__(self) -> _Door:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._inside:
            task.cancel()
        await asyncio.gather(*self._inside, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def accepting(self, listening: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Take connections until the block ends."""
        tasks = [asyncio.create_task(self._accept(listener), name="accept") for listener in listening]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for listener in listening:
                listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(_RETRY)  # the socket stays ready: without a pause this would spin
                continue
            self._let_in(peer)
            await asyncio.sleep(0)  # where many wait, accepting one does not by itself give way to anything else

    def _let_in(self, peer: socket.socket) -> None:
        if len(self._inside) >= self._most and not self._make_room():
            log.warning("a connection was refused: there are %d, and each has a request under way", len(self._inside))
            peer.close()
            return
        connection = Connection(self._http, self._limits)
        task = asyncio.create_task(self._serve(connection, peer), name="connection")
        self._inside[task] = connection
        task.add_done_callback(lambda _: self._inside.pop(task, None))

    def _make_room(self) -> bool:
        """Cut off one that waits for a request to be sent; whether there was one.

        Those on which none ever was, and those that are idle between two: the longest in the larger group goes, so
        that a crowd of either kind is in its own way, not in the other's.
        """
        waiting = [task for task, connection in self._inside.items() if not connection.busy]
        if not waiting:
            return False
        unproven = [task for task in waiting if not self._inside[task].proven]
        idle = [task for task in waiting if self._inside[task].proven]
        larger = unproven if len(unproven) >= len(idle) else idle
        longest = min(larger, key=lambda task: self._inside[task].waiting_since)
        log.warning("a connection without a request was cut off: there are %d", len(self._inside))
        longest.cancel()
        del self._inside[longest]
        return True

    async def _serve(self, connection: Connection, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        shake = self._limits.head if self._tls else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: connection, peer, ssl=self._tls, ssl_handshake_timeout=shake
            )
        except OSError as error:  # a peer that does not speak TLS, or too slowly
            log.warning("a connection was not made: %s", error)
            return
        try:
            await connection.over.wait()
        finally:
            transport.abort()


def _room() -> int:
    """A quarter of what the process may open: models, pipes and the runners' connections need descriptors, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft // 4))
