"""One HTTP connection, and how long a peer that stops sending or reading is waited for.

It stands between a transport and aiohttp's protocol and hands everything on. aiohttp itself ends a connection that has
been idle for too long; it waits for ever for a body that does not come and for a peer that does not take its answer,
and a head has no limit of its own. Whoever runs into a limit here is cut off, which cancels the handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from aiohttp import StreamReader, web
from aiohttp.typedefs import Handler

from pilotfish.daemon.http.sparing_log import Sparing

log = logging.getLogger("pilotfish.connections")
log.addFilter(Sparing())  # what is said here is about peers, who must not be able to fill a disk

LEAST = 4096  # bytes that must get through in every `stall` seconds: no network that anybody uses is slower


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may cost. `connections` None stands for a quarter of the descriptors, and 512 at most.

    Go's HTTP client, and so Ollama, lets go of an idle connection after 90 s. The keep-alive is longer, so that it is
    always the client who closes: a server that does may close just when a request is on its way.
    """

    head: float = 20.0  # seconds from its first byte, or from the connection, until a request's head is complete
    stall: float = 30.0  # seconds in which LEAST bytes of a body must come, or LEAST bytes of an answer be taken
    keep_alive: float = 120.0  # seconds between two requests
    connections: int | None = None


ORDINARY = Limits()


MakeHTTP = Callable[[], asyncio.Protocol]


class Connection(asyncio.Protocol):
    """A connection with deadlines. `over` is set at its end."""

    def __init__(self, make_http: MakeHTTP, limits: Limits) -> None:
        """`make_http` gives aiohttp's protocol for it."""
        self.over = asyncio.Event()
        self.busy = False  # a request is being read or answered
        self.proven = False  # a whole head has come on it
        self._make_http = make_http
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._received = 0  # bytes
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._in_head = False
        self._handed_over = False
        self.waiting_since = self._loop.time()

    @property
    def http(self) -> asyncio.Protocol:
        """What everything is handed on to."""
        return self._http

    def hand_over(self) -> None:
        """From here on another server answers: how long it may take is its own business, and the client's."""
        self.busy, self.proven, self._in_head, self._handed_over = True, True, False, True
        self._stop_reading_clock()
        self._stop_writing_clock()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not its subclasses
        self._http = self._make_http()
        self._http.connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading_clock()
        self._stop_writing_clock()
        self._http.connection_lost(exc)
        self.over.set()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if not self.busy and not self._in_head:
            self._expect_head()
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        if not self._handed_over:
            self._expect_taking()

    def resume_writing(self) -> None:
        self._stop_writing_clock()
        self._http.resume_writing()

    @contextlib.contextmanager
    def answering(self, body: StreamReader) -> Iterator[None]:
        """While a request, whose head is complete, is read and answered."""
        self.busy, self.proven, self._in_head = True, True, False
        self._expect_body(body)
        try:
            yield
        finally:
            if not self._handed_over:
                self.busy = False
                self._expect_request()

    def _expect_head(self) -> None:
        self._in_head = True
        self.waiting_since = self._loop.time()
        self._set_reading_clock(self._limits.head, lambda: self._give_up("the head of a request did not come"))

    def _expect_request(self) -> None:
        """aiohttp closes idle connections; a transport that is closed still waits for its last bytes to be taken."""
        self.waiting_since = self._loop.time()
        self._set_reading_clock(self._limits.keep_alive + self._limits.stall, self._look_at_idleness)

    def _look_at_idleness(self) -> None:
        if self._writing is not None:
            self._expect_request()  # the answer is still on its way, with a clock of its own
        else:
            self._give_up("it was idle for too long")

    def _expect_body(self, body: StreamReader) -> None:
        self._stop_reading_clock()
        if not body.is_eof():
            before = self._received
            self._set_reading_clock(self._limits.stall, lambda: self._look_at_body(body, before))

    def _look_at_body(self, body: StreamReader, before: int) -> None:
        # Where nothing is read at the moment, it is not the peer who keeps us waiting.
        if body.is_eof() or self._received - before >= LEAST or not self._transport.is_reading():
            self._expect_body(body)
        else:
            self._give_up("the body of a request did not come")

    def _expect_taking(self) -> None:
        before = self._transport.get_write_buffer_size()
        self._writing = self._loop.call_later(self._limits.stall, self._look_at_taking, before)

    def _look_at_taking(self, before: int) -> None:
        if before - self._transport.get_write_buffer_size() >= LEAST:
            self._expect_taking()
        else:
            self._give_up("an answer was not read")

    def _give_up(self, why: str) -> None:
        log.warning("a connection was cut off: %s", why)
        self._transport.abort()

    def _set_reading_clock(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_reading_clock()
        if not self.over.is_set():
            self._reading = self._loop.call_later(seconds, call)

    def _stop_reading_clock(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing_clock(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


@web.middleware
async def tell_connection(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets a connection know when a request begins and ends. The outermost middleware of every server here."""
    connection = request.transport.get_protocol() if request.transport else None
    if not isinstance(connection, Connection):
        return await handler(request)
    with connection.answering(request.content):
        try:
            return await handler(request)
        except ConnectionError:
            if request.transport is None or request.transport.is_closing():
                raise asyncio.CancelledError from None  # the client is gone: aiohttp would log a failed request
            raise
