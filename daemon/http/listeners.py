"""Listening sockets. Apart from `serving.py`, because a runner takes its port before it imports an HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

_BACKLOG = 128
_SEND_BUFFER = 1 << 16  # bytes
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def listeners(host: str, port: int) -> list[socket.socket]:
    """Listening sockets at every address that `host` stands for; an empty one stands for all of this machine.

    With port 0 the system chooses one. Addresses that this machine does not have (a name may have an IPv6 one where
    there is no IPv6) are left out if there are others. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    missing: OSError | None = None
    with contextlib.ExitStack() as opened:
        made: list[socket.socket] = []
        for family, _, _, _, (name, _, *rest) in dict.fromkeys(found):
            where = (name, made[0].getsockname()[1] if made else port, *rest)
            try:
                made.append(opened.enter_context(_listener(family, where)))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if missing and not made:
            raise missing
        opened.pop_all()
        return made


def _listener(family: int, where: tuple[Any, ...]) -> socket.socket:
    listener = socket.create_server(where, family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    # Connections inherit it. What the kernel holds counts as read, and by itself it would hold minutes of text.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    at_once(listener)
    return listener


def at_once(listener: socket.socket) -> None:
    """Have connections, which inherit it, send what is written at once.

    asyncio sees to that itself, but for connections of sockets that `socket.create_server` made: what is written while
    the other side has not confirmed what came before would wait for that, 40 ms where it has nothing to say.
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
