"""Servers that a benchmark starts: loaded when they are asked, ended afterwards, and heard when they fail."""

from __future__ import annotations

import asyncio
import sys

import psutil
import pytest

from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab.bench_starting import StartedServer, started
from pilotfish.hooks.errors import EngineError
from tests.daemon.front import fake_runner


def command(*more):
    return lambda port: [sys.executable, fake_runner.__file__, "--port", str(port), *more]


async def test_it_is_loaded_when_it_is_asked_and_ended_afterwards():
    before = psutil.Process().children()
    async with new_session() as session, started(command("--load-seconds", "0.1"), "fake", session) as server:
        assert await server.client.healthy()
        assert len(psutil.Process().children()) == len(before) + 1
    assert psutil.Process().children() == before


async def test_what_loading_took_and_what_it_holds_is_known_while_it_lives():
    async with new_session() as session, started(command("--load-seconds", "0.3"), "fake", session) as server:
        assert server.load_seconds >= 0.3
        memory = server.memory()
        assert memory is not None
        assert memory.resident > 1 << 20
        if sys.platform == "linux":
            assert memory.peak is not None
            assert memory.peak >= memory.resident
    assert server.memory() is None


async def test_what_its_children_hold_is_its_own():
    child = "import time; kept = bytearray(50 << 20); print(flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    async with new_session() as session:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
        try:
            await process.stdout.readline()
            memory = StartedServer(RunnerClient(session, 1), process.pid, 0.0).memory()
        finally:
            for child in psutil.Process(process.pid).children():
                child.kill()
            await process.wait()
    assert memory is not None
    assert memory.resident > 50 << 20


async def test_one_that_cannot_load_is_told_with_its_last_words():
    said = "fake ended while loading its model: exit code 1: fake runner: no such quantization"
    async with new_session() as session:
        with pytest.raises(EngineError, match=said):
            async with started(command("--fail-load", "no such quantization"), "fake", session):
                raise AssertionError("it did not come up")


async def test_one_that_cannot_be_started_is_named():
    async with new_session() as session:
        with pytest.raises(EngineError, match=r"fake cannot be started: .*/no/such"):
            async with started(lambda port: ["/no/such"], "fake", session):
                raise AssertionError("it did not come up")
