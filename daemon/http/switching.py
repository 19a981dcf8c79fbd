"""Whose a request is: the application's here, or another server's, to which the whole connection is handed over.

Each connection carries one request, and whoever answers says so (`Connection: close`): what is not ours is handed on
unread, and where an unread request ends nobody here knows. What the application is given is kept until it answers, so
that it can still decide that the request is the other server's, who then gets the bytes that the client sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from pilotfish.daemon.http.connection import Connection, MakeHTTP
from pilotfish.daemon.http.handed_on import HandedOn
from pilotfish.daemon.http.request_head import RequestHead, end_of_head
from pilotfish.daemon.http.tunnel import LINGER, ServerAddress, Tunnel

MAX_HEAD = 1 << 20  # bytes, as Go has it
MAX_KEPT = 64 << 20  # bytes of a request for the application; a longer one is the other server's


@dataclass(frozen=True, slots=True)
class Relaying:
    """What goes where. `mine` says what the application is asked first, `refusal` what nobody is (an empty answer: it
    may pass), `failure` how a client is told that the other server does not answer."""

    address: ServerAddress
    mark: str  # for the `Via` line of what is handed on
    mine: Callable[[RequestHead], bool]
    refusal: Callable[[RequestHead], bytes]
    failure: Callable[[RequestHead, str], bytes]


class Switch(HandedOn):
    """One connection, between its deadlines and whoever answers."""

    def __init__(self, make_http: MakeHTTP, relaying: Relaying) -> None:
        self._make_http = make_http
        self._relaying = relaying
        self._received = bytearray()  # what came so far; with `_http`, for as long as the request may be handed on
        self._keeps = True
        self._head: RequestHead | None = None
        self._http: asyncio.Protocol | None = None
        self._tunnel: Tunnel | None = None

    @property
    def side(self) -> asyncio.Protocol | None:
        return self._tunnel or self._http

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.data_received(data)
            return
        if self._keeps:
            self._received += data
        if self._http is None:
            self._look(len(self._received) - len(data))
        elif self._keeps and len(self._received) > MAX_KEPT:
            self.relay()
        else:
            self._http.data_received(data)

    @property
    def may_relay(self) -> bool:
        """Whether nothing of an answer has been sent, and nobody else answers yet."""
        return self._head is not None and self._keeps and self._tunnel is None

    def answers(self) -> None:
        """The application answers: nothing is kept any more."""
        self._keeps = False
        self._received = bytearray()

    def relay(self, otherwise: bytes = b"") -> None:
        """The request is the other server's after all; only while `may_relay`. The application is told that its client
        is gone. `otherwise` is the whole answer where that server does not answer; empty: that this is so."""
        assert self._head is not None
        assert self.may_relay, "an answer has begun"
        http, self._http = self._http, None
        if isinstance(http, web.RequestHandler):
            http.transport = None  # which it would close
            asyncio.get_running_loop().call_soon(http.connection_lost, None)
        # Whoever expected to be told to go on was, when the application read the body.
        self._hand_over(self._head, ("Expect",), otherwise)

    def _look(self, before: int) -> None:
        size = end_of_head(self._received, before)
        if size is None:
            if len(self._received) > MAX_HEAD:
                self._end_with(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n")
            return
        self._head = head = RequestHead.parse(bytes(self._received[:size]))
        if refusal := self._relaying.refusal(head):
            self._end_with(refusal)
        elif self._relaying.mine(head):
            self._http = self._make_http()
            self._http.connection_made(self._transport)
            self._http.data_received(bytes(self._received))
        else:
            self._hand_over(head)

    def _hand_over(self, head: RequestHead, without: tuple[str, ...] = (), otherwise: bytes = b"") -> None:
        rules = self._relaying
        connection = self._transport.get_protocol()
        if isinstance(connection, Connection):
            connection.hand_over()
        first = head.handed_on((f"Via: {rules.mark}",), without=without) + self._received[head.size :]
        self.answers()
        self._tunnel = Tunnel(self._transport, rules.address, first, lambda why: otherwise or rules.failure(head, why))

    def _end_with(self, answer: bytes) -> None:
        self.answers()
        self._transport.write(answer)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        # What still comes is thrown away for a moment: to close over it could cost the client the answer.
        asyncio.get_running_loop().call_later(LINGER, self._transport.close)


def switch_of(request: web.Request) -> Switch | None:
    """What `request` came through; None where nothing is relayed, and once its client is gone."""
    connection = request.transport.get_protocol() if request.transport else None
    found = connection.http if isinstance(connection, Connection) else None
    return found if isinstance(found, Switch) else None
