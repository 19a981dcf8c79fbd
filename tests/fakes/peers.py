"""Clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path


def connect(where: int | Path) -> socket.socket:
    """A connection to a port of this machine, or to a path."""
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where))
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(where))
    return peer


@contextlib.contextmanager
def crowd(where: int | Path, size: int) -> Iterator[None]:
    """Connections with half a head each."""
    with contextlib.ExitStack() as opened:
        for _ in range(size):
            peer = opened.enter_context(connect(where))
            with contextlib.suppress(ConnectionError):
                peer.sendall(b"GET / HTTP/1.1\r\nHost: he")
        yield


@contextlib.asynccontextmanager
async def crowding(where: int | Path, size: int) -> AsyncIterator[None]:
    """The same, for a server on the running loop: connecting may wait until it accepts."""
    with contextlib.ExitStack() as opened:
        await asyncio.to_thread(opened.enter_context, crowd(where, size))
        yield


@contextlib.contextmanager
def not_reading(where: int | Path, path: str, body: object) -> Iterator[None]:
    """A client that posts `body`, as JSON unless it is bytes, and takes nothing of the answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with connect(where) as peer:
        peer.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)))
        peer.sendall(data)
        yield
