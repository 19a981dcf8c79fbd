"""The front before an Ollama: whatever is not for a model of ours passes as it is, in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc

import pytest

from pilotfish.daemon.front.settings import Upstream
from pilotfish.daemon.http.connection import Limits
from pilotfish.daemon.http.tunnel import ServerAddress, reset
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.errors import ConfigError
from tests.daemon.front.fake_upstream import END, fake_upstream
from tests.waiting import until

MANY = 64 << 20  # bytes that pass while only a little of them may be held
HELD = 8 << 20
PIECE = 1 << 16


@pytest.fixture
async def upstream():
    async with fake_upstream() as upstream:
        yield upstream


@pytest.fixture
async def relay(start, upstream):
    async with start(upstream=Upstream(upstream.address, serve_gguf=True)) as front:
        upstream.visits.clear()
        yield front


@contextlib.asynccontextmanager
async def connected(front):
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def said_to(front, data):
    """All bytes of the answer, up to the connection's end."""
    async with connected(front) as (reader, writer):
        writer.write(data)
        return await reader.read()


def request(method, path, lines=b"", body=b""):
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n%s" % (method, path, lines, length, body)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX-Odd:  a  b\r\nx-odd: c\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 204 Nothing At All\r\n\r\n",
        b'HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"error":"x"}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2;e=1\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00",
    ],
    ids=["headers", "empty", "error", "trailers", "1xx", "old", "encoded"],
)
@pytest.mark.parametrize("method", [b"GET", b"OPTIONS", b"QUERY"])
async def test_an_answer_passes_byte_for_byte(relay, upstream, method, answer):
    upstream.script = lambda visit: visit.send(answer)
    assert await said_to(relay, request(method, b"/api/some/new?thing=%2F")) == answer
    assert upstream.visits[0].head.startswith(method + b" /api/some/new?thing=%2F HTTP/1.1\r\nHost: localhost\r\n")


async def test_a_request_passes_unread_with_its_chunks_and_trailers(relay, upstream):
    body = b"3;a=b\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"

    async def script(visit):
        visit.body = await visit.reader.readexactly(len(body))
        await visit.answer()

    upstream.script = script
    await said_to(relay, request(b"POST", b"/v1/responses", b"Transfer-Encoding: chunked\r\n") + body)
    (visit,) = upstream.visits
    assert visit.body == body
    assert visit.header("connection") == ["close"]
    assert visit.header("via")[0].startswith("1.1 pilotfish-")


async def test_who_waits_to_be_told_to_go_on_is_told_by_the_upstream(relay, upstream):
    async def script(visit):
        assert visit.header("expect") == ["100-continue"]
        await visit.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await visit.answer(await visit.read_body())

    upstream.script = script
    async with connected(relay) as (reader, writer):
        writer.write(request(b"POST", b"/api/blobs/sha256-1", b"Expect: 100-continue\r\nContent-Length: 3\r\n"))
        assert await reader.readuntil(END) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert (await reader.read()).endswith(END + b"abc")


async def test_an_answer_may_come_before_the_body_has(relay, upstream):
    upstream.script = lambda visit: visit.answer(b"no", b"400 Bad Request")
    async with connected(relay) as (reader, writer):
        writer.write(request(b"POST", b"/api/blobs/sha256-1", b"Content-Length: 1000000000\r\n") + b"begun")
        assert (await reader.read()).endswith(END + b"no")


async def test_a_connection_that_changes_its_protocol_is_a_pipe(relay, upstream):
    async def script(visit):
        assert visit.header("connection") == ["Upgrade, close"]
        assert visit.header("upgrade") == ["echo"]
        await visit.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n")
        while data := await visit.reader.read(PIECE):
            await visit.send(data.upper())

    upstream.script = script
    async with connected(relay) as (reader, writer):
        writer.write(request(b"GET", b"/api/chat", b"Connection: Upgrade\r\nUpgrade: echo\r\n"))
        assert b"101" in await reader.readuntil(END)
        for word in (b"one", b"two"):
            writer.write(word)
            assert await reader.readexactly(3) == word.upper()
        writer.write_eof()
        assert await reader.read() == b""


async def test_an_upload_that_is_not_taken_waits_and_takes_no_memory(relay, upstream):
    go_on = asyncio.Event()
    taken = 0

    async def script(visit):
        nonlocal taken
        await go_on.wait()
        while taken < MANY:
            taken += len(await visit.reader.read(PIECE))
        await visit.answer(b"done")

    async def upload(writer):
        for _ in range(MANY // PIECE):
            writer.write(bytes(PIECE))
            await writer.drain()

    upstream.script = script
    async with connected(relay) as (reader, writer):
        writer.write(request(b"POST", b"/api/blobs/sha256-1", b"Content-Length: %d\r\n" % MANY))
        with traced() as most:
            sending = asyncio.create_task(upload(writer))
            await asyncio.sleep(0.2)
            assert not sending.done(), "all of it was taken, and is held"
            go_on.set()
            await sending
            assert (await reader.read()).endswith(END + b"done")
            assert most() < HELD


async def test_an_answer_that_is_not_read_waits_and_takes_no_memory(start, upstream):
    """Not even our own deadline for slow readers ends it: how long it may take is the upstream's business."""
    sent = asyncio.Event()

    async def script(visit):
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MANY)
        for _ in range(MANY // PIECE):
            await visit.send(bytes(PIECE))
        sent.set()

    async with start(limits=Limits(stall=0.1), upstream=Upstream(upstream.address)) as front:
        upstream.script = script
        async with connected(front) as (reader, writer):
            with traced() as most:
                writer.write(request(b"POST", b"/api/pull"))
                await asyncio.sleep(0.4)
                assert not sent.is_set(), "all of it was taken, and is held"
                await reader.readuntil(END)
                length = 0
                while data := await reader.read(PIECE):
                    length += len(data)
                assert length == MANY
                assert most() < HELD


@contextlib.contextmanager
def traced():
    """The most that Python held at a time since."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in mid-answer"])
async def test_a_client_that_leaves_ends_the_upstreams_request(relay, upstream, begun):
    async def script(visit):
        if begun:
            await visit.send(b"HTTP/1.1 200 OK\r\n\r\n")
        assert await visit.reader.read() == b""
        visit.ended.set()

    upstream.script = script
    async with connected(relay) as (reader, writer):
        writer.write(request(b"POST", b"/api/pull", body=b"{}")[:-2])
        await until(lambda: upstream.visits and upstream.visits[0].head)
        if begun:
            await reader.readuntil(END)
        writer.transport.abort()
        await until(upstream.visits[0].ended.is_set, "the upstream goes on")


async def test_an_answer_that_breaks_off_breaks_off_for_the_client(relay, upstream):
    async def script(visit):
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        reset(visit.writer.transport)

    upstream.script = script
    async with connected(relay) as (reader, writer):
        writer.write(request(b"GET", b"/api/tags"))
        assert (await reader.readuntil(END)).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_ends_of_sending_are_passed_on_alone(relay, upstream):
    async def script(visit):
        rest = await visit.reader.read()
        await visit.answer(rest)

    upstream.script = script
    async with connected(relay) as (reader, writer):
        writer.write(request(b"POST", b"/api/new") + b"abc")
        writer.write_eof()
        assert (await reader.read()).endswith(END + b"abc")


@pytest.mark.parametrize("path", ["/api/tags", "/v1/models"])
async def test_an_upstream_that_is_away_is_named_with_a_remedy(start, path):
    address = ServerAddress("127.0.0.1", free_port())
    async with start(upstream=Upstream(address)) as front, front.http.get(front.url + path) as response:
        assert response.status == 502
        error = (await response.json())["error"]
        said = error["message"] if path.startswith("/v1") else error
        assert address.url in said
        assert "ollama serve" in said


async def test_an_upstream_that_hangs_up_is_told_as_well(relay, upstream):
    async def script(visit):
        return

    upstream.script = script
    answer = await said_to(relay, request(b"GET", b"/api/tags"))
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"broke off before it answered" in answer


async def test_a_head_without_end_is_refused(relay, upstream):
    answer = await said_to(relay, b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20) + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert upstream.visits == []


@pytest.mark.parametrize(("host", "passes"), [("localhost", True), ("192.168.1.5:1", True), ("evil.example", False)])
async def test_foreign_names_reach_nobody_through_loopback(relay, upstream, host, passes):
    answer = await said_to(relay, b"GET /api/tags HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
    assert answer.startswith(b"HTTP/1.1 200" if passes else b"HTTP/1.1 403")
    assert [visit.header("host") for visit in upstream.visits] == ([[host]] if passes else [])


async def test_a_refusal_arrives_while_a_body_is_still_sent(relay, upstream):
    answer = await said_to(relay, request(b"POST", b"/api/chat", b"Host: evil.example\r\n", bytes(1 << 22)))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert upstream.visits == []


async def test_origins_are_the_upstreams_business(relay, upstream):
    preflight = request(b"OPTIONS", b"/api/chat", b"Origin: https://any.example\r\n")
    await said_to(relay, preflight)
    assert upstream.visits[0].header("origin") == ["https://any.example"]


async def test_a_front_that_is_its_own_upstream_does_not_start(start):
    port = free_port()
    with pytest.raises(ConfigError, match="this server itself"):
        async with start(port=port, upstream=Upstream(ServerAddress("127.0.0.1", port))):
            pass


async def test_a_pilotfish_without_an_ollama_is_no_upstream(start, front):
    with pytest.raises(ConfigError, match="name the Ollama"):
        async with start(upstream=Upstream(ServerAddress("127.0.0.1", front.settings.port))):
            pass


async def test_a_loop_through_another_server_ends_where_it_began(start, relay, upstream):
    await said_to(relay, request(b"GET", b"/api/tags"))
    via = b"Via: 1.1 other, %s\r\n" % upstream.visits[0].header("via")[0].encode()
    answer = await said_to(relay, request(b"GET", b"/api/tags", via))
    assert answer.startswith(b"HTTP/1.1 508 ")
    assert len(upstream.visits) == 1
    behind = Upstream(ServerAddress("127.0.0.1", relay.settings.port))
    async with start(upstream=behind) as chained, chained.http.get(f"{chained.url}/api/tags") as response:
        assert response.status == 200, "one behind the other is no loop"
