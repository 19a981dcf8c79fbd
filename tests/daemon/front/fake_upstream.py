"""A stand-in for Ollama, byte by byte: every connection is handed to a script that reads and writes as it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from pilotfish.daemon.http.tunnel import ServerAddress

END = b"\r\n\r\n"


@dataclass
class Visit:
    """One connection to the upstream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # the other side is gone

    async def read_head(self) -> bytes:
        self.head = await self.reader.readuntil(END)
        return self.head

    def header(self, name: str) -> list[str]:
        lines = self.head.decode().split("\r\n")[1:]
        return [line.partition(":")[2].strip() for line in lines if line.lower().startswith(name.lower() + ":")]

    async def read_body(self) -> bytes:
        """The body by its Content-Length."""
        return await self.reader.readexactly(int((self.header("content-length") or ["0"])[0]))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"{}", status: bytes = b"200 OK", lines: bytes = b"") -> None:
        always = b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        await self.send(b"HTTP/1.1 %s\r\n%s" % (status, lines) + always + body)


Script = Callable[[Visit], Awaitable[None]]


@dataclass
class FakeUpstream:
    """`script` is what happens on the next connections; everything that came is in `visits`."""

    address: ServerAddress
    visits: list[Visit]
    script: Script | None = None

    def asked(self, path: str) -> list[Visit]:
        return [visit for visit in self.visits if visit.head.split(b" ")[1:2] == [path.encode()]]


async def ollama(visit: Visit) -> None:
    """What Ollama says to short questions; of a request to render, the last message between brackets."""
    body = await visit.read_body()
    path = visit.head.split(b" ")[1]
    if path == b"/api/version":
        await visit.answer(b'{"version":"0.33.2"}')
    elif path == b"/api/ps":
        await visit.answer(b'{"models":[{"name":"theirs:latest","model":"theirs:latest"}]}')
    elif b"_debug_render_only" in body:
        asked = json.loads(body)
        said = asked["messages"][-1]["content"] if "messages" in asked else asked["prompt"]
        await visit.answer(json.dumps({"_debug_info": {"rendered_template": f"[{said}]"}}).encode())
    else:
        await visit.answer(b'{"upstream":true}')


@contextlib.asynccontextmanager
async def fake_upstream() -> AsyncIterator[FakeUpstream]:
    """One that listens on a free port; what is still connected at the end is cut off."""
    upstream = FakeUpstream(ServerAddress("127.0.0.1", 0), [])
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        visit = Visit(reader, writer)
        upstream.visits.append(visit)
        try:
            await visit.read_head()
            await (upstream.script or ollama)(visit)
        except (ConnectionError, asyncio.IncompleteReadError):
            visit.ended.set()
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream.address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield upstream
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
