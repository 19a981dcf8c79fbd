"""Both ways in at one port: a near end, told by its first byte and tied to the process that computes, or HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import cast

from pilotfish.daemon.http.connection import Connection, MakeHTTP
from pilotfish.daemon.http.handed_on import HandedOn
from pilotfish.daemon.http.sparing_log import Sparing
from pilotfish.daemon.http.tunnel import ServerAddress, Tunnel
from pilotfish.daemon.rpchost.far_host import FarHost, NearEnd
from pilotfish.daemon.rpchost.hello import HELLO

log = logging.getLogger("pilotfish.rpchost.peers")
log.addFilter(Sparing())  # what is said here is about peers, who must not be able to fill a disk

# A near end whose machine or network is gone says nothing, for as long as a near end without requests does; after so
# long it is known to be gone, and the far end is free.
_IDLE, _INTERVAL, _TRIES = 15, 5, 3  # seconds, seconds, probes without an answer
_UNANSWERED = 30_000  # milliseconds that what was sent may stay without an acknowledgement


class Doorway(HandedOn):
    """One connection."""

    def __init__(self, make_http: MakeHTTP, host: FarHost) -> None:
        self._make_http = make_http
        self._host = host
        self._side: asyncio.Protocol | None = None  # HTTP's, or the tunnel
        self._first = bytearray()  # what a near end sends before it is known whether it is served
        self._asking: asyncio.Task[None] | None = None
        self._served: NearEnd | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not its subclasses

    def data_received(self, data: bytes) -> None:
        if self._side is not None:
            self._side.data_received(data)
        elif self._asking is not None or data[0] == HELLO:
            self._first += data
            self._transport.pause_reading()
            self._asking = self._asking or asyncio.create_task(self._ask(), name="a near end")
        elif chr(data[0]).isupper():  # as methods are
            self._side = self._make_http()
            self._side.connection_made(self._transport)
            self._side.data_received(data)
        else:
            log.warning("%s was cut off: what it sends is neither RPC nor HTTP", self._peer)
            self._transport.abort()

    @property
    def side(self) -> asyncio.Protocol | None:
        return self._side

    def eof_received(self) -> bool | None:
        if self._served is not None:  # near ends never end one direction alone
            self._host.ending(self._served)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._asking is not None:
            self._asking.cancel()
        if self._served is not None:
            self._host.leave(self._served)

    async def _ask(self) -> None:
        connection = self._transport.get_protocol()
        if isinstance(connection, Connection):
            connection.hand_over()  # a near end may be silent for as long as it keeps a model
        _notice_when_gone(self._transport)
        admitted = await self._host.admit(self._peer)
        if admitted is None:
            self._transport.abort()
            return
        self._served, port = admitted
        address = ServerAddress("127.0.0.1", port)
        self._side = Tunnel(self._transport, address, bytes(self._first), lambda why: b"")

    @property
    def _peer(self) -> str:
        host, port, *_ = self._transport.get_extra_info("peername") or ("somebody", 0)
        return f"{host}:{port}"


def _notice_when_gone(transport: asyncio.Transport) -> None:
    found = transport.get_extra_info("socket")
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))  # Linux's name, macOS's
    wanted = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, idle, _IDLE),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", None), _INTERVAL),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", None), _TRIES),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", None), _UNANSWERED),
    )
    for level, option, value in wanted:
        if option is not None:
            with contextlib.suppress(OSError):
                found.setsockopt(level, option, value)
