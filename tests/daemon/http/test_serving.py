"""Peers that send half, read nothing, or come in crowds, and the others who still get their answers.

Most of it happens on an event loop whose clock only moves when a test says so, with real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from pilotfish.daemon.http.connection import LEAST, Limits, log
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from tests.daemon.http.serving_process import LOOPS
from tests.fakes.certificates import self_signed
from tests.waiting import until, wait_until

LIMITS = Limits(head=20, stall=30, keep_alive=120, connections=8)
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
POST = b"POST /length HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"
FLOOD = b"GET /flood HTTP/1.1\r\nHost: here\r\n\r\n"
ENOUGH = 1 << 17  # bytes more than can be on their way at a time


class Peer:
    """A client that sends and reads exactly what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, data: bytes = GET) -> bytes:
        """The body of the answer."""
        self.writer.write(data)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return await self.reader.readexactly(int(length.partition(b":")[2]))

    async def ended(self) -> bool:
        """Wait until the server has hung up; nothing more may come."""
        with contextlib.suppress(ConnectionError):
            assert await self.reader.read() == b""
        return True


@dataclass
class Bench:
    """A server and a clock."""

    clock: FakeClock
    port: int
    streams: list[str] = field(default_factory=list)  # what handlers did
    peers: list[Peer] = field(default_factory=list)

    def peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Peer:
        self.peers.append(Peer(reader, writer))
        return self.peers[-1]

    async def connect(self, data: bytes = b"") -> Peer:
        """A connection on which `data` has arrived."""
        peer = self.peer(*await asyncio.open_connection("127.0.0.1", self.port))
        peer.writer.write(data)
        await self.settle()
        return peer

    async def settle(self) -> None:
        """Whatever was sent before has arrived, because what is sent now was answered."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        assert await peer.ask() == b"hello"
        peer.writer.close()
        await peer.writer.wait_closed()

    async def passing(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@contextlib.asynccontextmanager
async def bench(clock: FakeClock, limits: Limits = LIMITS, tls: ssl.SSLContext | None = None) -> AsyncIterator[Bench]:
    async def length(request: web.Request) -> web.Response:
        here.streams.append("reading")
        return web.Response(text=str(len(await request.read())))

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        here.streams.append("begun")
        try:
            while True:
                await response.write(bytes(ENOUGH))
        finally:
            here.streams.append("ended")

    app = web.Application(client_max_size=1 << 24)
    app.add_routes([web.get("/", hello), web.post("/length", length), web.get("/flood", flood)])
    listening = await listeners("127.0.0.1", 0)
    here = Bench(clock, listening[0].getsockname()[1])
    async with serving(app, listening, limits, tls=tls):
        try:
            yield here
        finally:  # nobody waits for handlers: the clock stands still
            for peer in here.peers:
                peer.writer.close()
            await until(lambda: here.streams.count("begun") == here.streams.count("ended"), pause=0)


@pytest.fixture
async def clock() -> AsyncIterator[FakeClock]:
    """The clock of the running loop: nothing is late but what a test makes late."""
    loop, clock = asyncio.get_running_loop(), FakeClock()
    clock.now = loop.time()
    loop.time = clock  # type: ignore[method-assign]  # of this loop alone, as time passes
    yield clock
    del loop.time


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """A server's certificate, signed by itself."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*self_signed(tmp_path))
    return context


@pytest.fixture(autouse=True)
def every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept back from the log for its rate."""
    monkeypatch.setattr(log, "filters", [])


class TestAddresses:
    @staticmethod
    def names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        """Let every name stand for these."""

        def look_up(host, port, *_: object, **__: object):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def test_all_that_a_name_stands_for_on_one_port(self, monkeypatch):
        self.names(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.1")
        with contextlib.ExitStack() as opened:
            bound = [opened.enter_context(listener).getsockname() for listener in await listeners("two", 0)]
        assert [name for name, _ in bound] == ["127.0.0.1", "127.0.0.2"]
        assert len({port for _, port in bound}) == 1

    async def test_what_this_machine_does_not_have_is_left_out(self, monkeypatch):
        self.names(monkeypatch, "203.0.113.1", "127.0.0.1")
        (listener,) = await listeners("half", 0)
        with listener:
            assert listener.getsockname()[0] == "127.0.0.1"

    async def test_unless_it_has_none_of_them(self, monkeypatch):
        self.names(monkeypatch, "203.0.113.1", "203.0.113.2")
        with pytest.raises(OSError, match="assign requested address"):
            await listeners("elsewhere", 0)


class TestHeads:
    @pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: he"])
    async def test_half_a_head_is_waited_for_until_its_deadline(self, clock, sent):
        async with bench(clock) as here:
            peer = await here.connect(sent)
            await here.passing(19)
            assert not peer.reader.at_eof()
            await here.passing(2)
            assert await peer.ended()

    async def test_a_head_that_comes_in_drops_has_no_longer(self, clock):
        async with bench(clock) as here:
            peer = await here.connect()
            for i in range(4):
                peer.writer.write(GET[i : i + 1])
                await here.passing(6)
            assert await peer.ended()

    async def test_a_head_that_is_done_in_time_is_answered(self, clock):
        async with bench(clock) as here:
            peer = await here.connect(GET[:9])
            await here.passing(19)
            assert await peer.ask(GET[9:]) == b"hello"

    async def test_the_second_head_on_a_connection_has_a_deadline_too(self, clock):
        async with bench(clock) as here:
            peer = await here.connect()
            assert await peer.ask() == b"hello"
            await here.passing(60)
            peer.writer.write(GET[:9])
            await here.settle()
            await here.passing(21)
            assert await peer.ended()

    async def test_between_two_requests_a_connection_may_be_idle_for_longer(self, clock):
        async with bench(clock) as here:
            peer = await here.connect()
            for _ in range(3):
                assert await peer.ask() == b"hello"
                await here.passing(119)
            await here.passing(2)
            assert await peer.ended()


class TestBodies:
    async def test_a_body_that_stops_coming_ends_the_connection(self, clock):
        async with bench(clock) as here:
            peer = await here.connect(POST % 100_000 + bytes(50_000))
            await here.passing(31)  # in which something came
            await here.passing(31)
            assert await peer.ended()

    async def test_a_body_that_comes_in_drops_does_as_well(self, clock):
        async with bench(clock) as here:
            peer = await here.connect(POST % 100_000)
            for _ in range(4):
                peer.writer.write(b"x")
                await here.passing(10)
            assert await peer.ended()

    async def test_an_upload_may_take_as_long_as_it_likes_while_it_moves(self, clock):
        async with bench(clock) as here:
            peer = await here.connect(POST % (20 * LEAST))
            for _ in range(19):
                peer.writer.write(bytes(LEAST))
                await here.settle()
                await here.passing(29)
            assert await peer.ask(bytes(LEAST)) == str(20 * LEAST).encode()


class TestAnswers:
    async def test_a_reader_that_stops_reading_ends_its_request(self, clock):
        async with bench(clock) as here:
            with raw(here.port, FLOOD):
                await until(lambda: here.streams, pause=0)
                while here.streams == ["begun"]:  # what the system holds for the reader may be taken meanwhile
                    await here.passing(31)
                assert here.streams == ["begun", "ended"]

    async def test_a_slow_reader_is_waited_for(self, clock):
        async with bench(clock) as here:
            with raw(here.port, FLOOD) as peer:
                await until(lambda: here.streams == ["begun"], pause=0)
                for _ in range(10):
                    await here.settle()
                    await drain(peer, 4 * ENOUGH)
                    await here.passing(29)
                assert here.streams == ["begun"]
                peer.close()


class TestCrowds:
    async def test_whoever_waited_longest_without_a_request_goes_first(self, clock, caplog):
        async with bench(clock) as here:
            asked = await here.connect()
            assert await asked.ask() == b"hello"
            silent = [await here.connect(GET[:i]) for i in range(10)]
            assert await asked.ask() == b"hello"
            assert [await peer.ended() for peer in silent[:3]] == [True] * 3
            assert await silent[-1].ask(GET[9:]) == b"hello"
        assert "a connection without a request was cut off: there are 8" in caplog.text

    async def test_a_crowd_of_idle_connections_is_not_in_the_way_of_new_ones(self, clock):
        async with bench(clock) as here:
            idle = []
            for _ in range(8):
                clock.advance(1)
                idle.append(await here.connect())
                assert await idle[-1].ask() == b"hello"
            new = await here.connect(GET[:9])
            assert await new.ask(GET[9:]) == b"hello"
            assert [await peer.ended() for peer in idle[:2]] == [True, True]
            assert await idle[-1].ask() == b"hello"

    async def test_requests_under_way_are_never_cut_off_for_others(self, clock, caplog):
        async with bench(clock) as here:
            asking = [await here.connect(POST % 10) for _ in range(7)]
            asking.append(here.peer(*await asyncio.open_connection("127.0.0.1", here.port)))
            asking[-1].writer.write(POST % 10)
            await until(lambda: here.streams == ["reading"] * 8, pause=0)
            late = here.peer(*await asyncio.open_connection("127.0.0.1", here.port))
            assert await late.ended()
            assert "a connection was refused: there are 8, and each has a request under way" in caplog.text
            assert [await peer.ask(bytes(10)) for peer in asking] == [b"10"] * 8
            assert await (await here.connect()).ask() == b"hello"


@contextlib.contextmanager
def raw(port: int, data: bytes) -> Iterator[socket.socket]:
    """A connection that reads nothing by itself."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(data)
        peer.setblocking(False)
        yield peer


async def drain(peer: socket.socket, n: int) -> None:
    """Read `n` bytes."""
    while n > 0:
        n -= len(await asyncio.get_running_loop().sock_recv(peer, n))


@pytest.mark.parametrize("loop", LOOPS)
def test_the_deadlines_hold_on_either_loop(loop):
    async def play() -> None:
        async with bench(FakeClock(), Limits(head=1, stall=0.2)) as here:
            with raw(here.port, FLOOD):
                half, body = await here.connect(GET[:9]), await here.connect(POST % 100_000)
                assert [await half.ended(), await body.ended()] == [True, True]
                await until(lambda: here.streams.count("ended") == 1, pause=0)
            assert await (await here.connect()).ask() == b"hello"

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(play())


@pytest.mark.parametrize("loop", LOOPS)
def test_handshakes_that_do_not_come_are_not_in_the_way(loop, certificate: ssl.SSLContext):
    async def play() -> None:
        async with bench(FakeClock(), Limits(head=1, connections=4), certificate) as here:
            silent = [here.peer(*await asyncio.open_connection("127.0.0.1", here.port)) for _ in range(10)]
            near = ssl.create_default_context()
            near.check_hostname, near.verify_mode = False, ssl.CERT_NONE
            talking = here.peer(*await asyncio.open_connection("127.0.0.1", here.port, ssl=near))
            assert await talking.ask() == b"hello"
            assert [await peer.ended() for peer in silent] == [True] * 10

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(play())


@pytest.mark.parametrize("loop", LOOPS)
def test_out_of_descriptors_is_a_line_a_second_and_passes(loop, tmp_path: Path):
    log = tmp_path / "log"
    words = [sys.executable, "-m", "tests.daemon.http.serving_process", loop, "48"]
    begun = time.monotonic()
    with log.open("wb") as errors, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with contextlib.ExitStack() as crowd:
            for _ in range(100):
                crowd.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(GET[:9])
            wait_until(lambda: b"no connection can be accepted" in log.read_bytes())
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            peer.sendall(GET)
            assert peer.recv(1 << 16).endswith(b"hello")
        process.terminate()
    seconds = time.monotonic() - begun
    lines = log.read_text().splitlines()
    assert "no connection can be accepted: [Errno 24] Too many open files" in lines[0]
    assert len(lines) <= seconds + 1
