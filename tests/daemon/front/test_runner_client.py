"""Talking to a runner, or to a llama-server in its place."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from pilotfish.daemon.front.runner_client import RunnerClient, new_session

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Keep-Alive: timeout=5, max=100\r\n\r\n"
    b'1e\r\ndata: {"stop":true, "n": 17}\n\n\r\n0\r\n\r\n'
)


@asynccontextmanager
async def ending_server():
    """Says that it keeps connections, and ends each after a streamed answer, as llama-server does."""
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line.lower())
        await reader.readexactly(length)
        writer.write(ANSWER)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], connections


@pytest.mark.parametrize("answers", [1, 5])
async def test_a_server_that_ends_its_connections_is_asked_on_new_ones(answers):
    async with ending_server() as (port, connections), new_session(reuse=False) as session:
        client = RunnerClient(session, port)
        for _ in range(answers):
            assert [event["n"] async for event in client.completion({"prompt": [1]})] == [17]
        assert len(connections) == answers
