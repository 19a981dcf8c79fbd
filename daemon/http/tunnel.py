"""A client's connection, tied to one of its own to another server: what either sends, the other gets, unread.

Theory of operation. Bytes are written to one side as they are read from the other. A side whose buffers are full stops
the reading of the other, so that memory is bounded whatever passes through. An end of sending is passed on as one, and
the other direction goes on. When the client is gone, the server's connection is broken off. When the server is done,
the client gets what is left, an end, and a moment in which what it still sends is thrown away: a socket that is closed
over unread bytes would reset the connection, and might cost the client the end of its answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("pilotfish.relay")

CONNECT = 10.0  # seconds until a server that does not answer counts as away
LINGER = 2.0  # seconds in which a client may still send after its answer has ended

Failure = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server listens."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """As it stands in a URL."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}"


class Tunnel(asyncio.Protocol):
    """The client's side. `failure` makes an answer of why there is none."""

    def __init__(self, client: asyncio.Transport, address: ServerAddress, first: bytes, failure: Failure) -> None:
        """Connects in the background; `first` is what the server gets first. Needs a running loop."""
        self._client = client
        self._address = address
        self._waiting = bytearray(first)
        self._failure = failure
        self._far: asyncio.Transport | None = None
        self._client_done = self._client_gone = self._answered = self._far_done = self._closing = False
        self._far_full = False
        self._loop = asyncio.get_running_loop()
        client.pause_reading()
        self._opening = asyncio.create_task(self._open(), name=f"connect to {address.authority}")

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(CONNECT):
                far, _ = await self._loop.create_connection(
                    lambda: _FarSide(self), self._address.host, self._address.port
                )
        except (OSError, TimeoutError) as error:
            self._fail(f"cannot be reached ({_reason(error)})")
            return
        if self._client_gone:
            far.abort()
            return
        self._far = far
        self._far.write(self._waiting)
        self._waiting = bytearray()
        if self._client_done:
            self._far.write_eof()
        if not self._far_full:
            self._client.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._far is not None:
            self._far.write(data)
        elif not self._closing:
            self._waiting += data

    def eof_received(self) -> bool:
        self._client_done = True
        if self._far is not None and not self._far.is_closing():
            self._far.write_eof()
        if self._far_done or self._closing:
            self._client.close()
        return True

    def pause_writing(self) -> None:
        if self._far is not None:
            self._far.pause_reading()

    def resume_writing(self) -> None:
        if self._far is not None:
            self._far.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client_gone = True
        self._opening.cancel()
        if self._far is not None:
            self._far.abort()

    def far_sent(self, data: bytes) -> None:
        """What the server says, for the client."""
        self._answered = True
        self._client.write(data)

    def far_ended(self) -> None:
        """The server says no more."""
        self._far_done = True
        if self._answered:
            self._end_client()
        elif self._far is not None:
            self._far.abort()

    def far_lost(self, exc: Exception | None) -> None:
        """The server's connection is gone."""
        self._far = None
        if self._client_gone:
            return
        if not self._answered:
            self._fail(f"broke off before it answered ({_reason(exc)})")
        elif self._far_done:
            self._end_client()
        else:
            log.warning("%s broke off in mid-answer (%s)", self._address.url, _reason(exc))
            reset(self._client)

    def far_full(self, full: bool) -> None:
        """Whether the server takes less than comes."""
        self._far_full = full
        if self._client_gone:
            return
        if full:
            self._client.pause_reading()
        else:
            self._client.resume_reading()

    def _fail(self, why: str) -> None:
        self._far_done = True
        if self._client_gone:
            return
        log.warning("%s %s", self._address.url, why)
        self._client.write(self._failure(why))
        self._end_client()
        self._client.resume_reading()

    def _end_client(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._client_done:
            self._client.close()
            return
        if self._client.can_write_eof():
            self._client.write_eof()
        self._loop.call_later(LINGER, self._let_go)

    def _let_go(self) -> None:
        if self._far is not None:
            self._far.abort()
        if not self._client_gone:
            self._client.close()  # what is still to be taken by the client is


class _FarSide(asyncio.Protocol):
    """The server's side of a tunnel."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def data_received(self, data: bytes) -> None:
        self._tunnel.far_sent(data)

    def eof_received(self) -> bool:
        self._tunnel.far_ended()
        return True

    def pause_writing(self) -> None:
        self._tunnel.far_full(True)

    def resume_writing(self) -> None:
        self._tunnel.far_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tunnel.far_lost(exc)


def reset(transport: asyncio.Transport) -> None:
    """Break the connection off, so that nobody takes what came for all."""
    if (found := transport.get_extra_info("socket")) is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _reason(error: BaseException | None) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "it does not answer"
    strerror = getattr(error, "strerror", None)
    return str(strerror or error or "it hung up")
