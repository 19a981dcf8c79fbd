"""Servers that a benchmark starts: loaded when they are asked, ended afterwards, and heard when they fail."""

from __future__ import annotations

import sys

import psutil
import pytest

from pilotfish.daemon.front.runner_client import new_session
from pilotfish.daemon.lab.bench_starting import started
from pilotfish.hooks.errors import EngineError
from tests.daemon.front import fake_runner


def command(*more):
    return lambda port: [sys.executable, fake_runner.__file__, "--port", str(port), *more]


async def test_it_is_loaded_when_it_is_asked_and_ended_afterwards():
    before = psutil.Process().children()
    async with new_session() as session, started(command("--load-seconds", "0.1"), "fake", session) as client:
        assert await client.healthy()
        assert len(psutil.Process().children()) == len(before) + 1
    assert psutil.Process().children() == before


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
