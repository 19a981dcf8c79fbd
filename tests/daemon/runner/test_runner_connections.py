"""Who may connect to a runner, and what a connection may cost it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from pilotfish.daemon.core.generation import OutputToken
from pilotfish.daemon.http.connection import ORDINARY, Limits
from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.runner import main
from pilotfish.daemon.runner.launch_arguments import parse
from tests.daemon.runner.scripted import BODY, ScriptedGenerator, card
from tests.fakes.peers import crowding, not_reading
from tests.waiting import until

Start = Callable[..., Awaitable[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Starts the runner, as its process does, with a scripted generator; gives its port and a client."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path))
    monkeypatch.setenv("PILOTFISH_CONFIG", "")

    @asynccontextmanager
    async def start(
        generator: ScriptedGenerator, limits: Limits = ORDINARY, host: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[int, aiohttp.ClientSession]]:
        monkeypatch.setattr(main, "_load", lambda *given: (generator, card(generator.engine)))
        port = free_port()
        words = ["--model", str(tmp_path / "blob"), "--host", host, "--port", str(port), "-c", "512", "-np", "1"]
        task = asyncio.create_task(main.serve(parse(words), words, threading.Event(), limits))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            await _until_healthy(http, task)
            yield port, http
        signal.raise_signal(signal.SIGTERM)
        assert await task == main.Ending()

    return start


async def _until_healthy(http: aiohttp.ClientSession, serving: asyncio.Task[main.Ending]) -> None:
    async def healthy() -> bool:
        assert not serving.done(), serving.result()
        try:
            async with http.get("/health") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    await until(healthy, "it never was healthy")


async def test_a_client_that_stops_reading_ends_its_generation(start):
    generator = ScriptedGenerator([[OutputToken(5, "on " * 20000)]] * 10_000)
    async with start(generator, Limits(stall=0.2)) as (port, _):
        with not_reading(port, "/completion", {**BODY, "stream": True}):
            await until(lambda: generator.cancelled)


async def test_half_heads_are_not_in_the_way(start):
    async with start(ScriptedGenerator(), Limits(connections=16)) as (port, http), crowding(port, 100):
        answer = await http.post("/completion", json=BODY)
        assert (answer.status, (await answer.json())["content"]) == (200, "five six seven")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:4711"}, 200),
        ({"Host": "[::1]:4711"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),  # even of this machine: nothing but Ollama talks to a runner
    ],
)
async def test_web_pages_are_not_answered(start, headers, status):
    async with start(ScriptedGenerator()) as (_, http):
        async with http.post("/completion", json=BODY, headers=headers) as answer:
            assert answer.status == status
            body = await answer.json()
        async with http.get("/health", headers=headers) as answer:
            assert answer.status == status
    if status == 403:
        assert body["error"] == {"code": 403, "message": "Forbidden", "type": "invalid_request_error"}


async def test_elsewhere_than_on_loopback_any_name_is_answered_and_pages_are_not(start):
    async with start(ScriptedGenerator(), host="0.0.0.0") as (_, http):
        for headers, status in (({"Host": "box.example"}, 200), ({"Origin": "https://evil.example"}, 403)):
            async with http.get("/health", headers=headers) as answer:
                assert answer.status == status
