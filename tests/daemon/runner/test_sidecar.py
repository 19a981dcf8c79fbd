"""A stock server beside the runner: it comes when it is needed, goes when it is not, and never stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pilotfish.daemon.runner.floor import StockServer
from pilotfish.daemon.runner.sidecar import Sidecar, on_port
from pilotfish.hooks.errors import EngineError
from tests.daemon.processes.endings import gone
from tests.waiting import until, wait_until

FAKE = Path(__file__).with_name("fake_stock.py")
ARGV = ["--model", "m.gguf", "--port", "1", "--host", "127.0.0.1", "-c", "64"]


@pytest.fixture
def server(tmp_path):
    """A program that can stand for llama-server."""
    path = tmp_path / "lib" / "llama-server"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
async def beside(server):
    """`beside(*more words, idle=seconds)`: a sidecar, closed after the test."""
    made = []

    def make(*words, idle=60.0, program=server):
        made.append(Sidecar(StockServer(program, {**os.environ, "MARK": "ours"}), [*ARGV, *words], idle))
        return made[-1]

    yield make
    for sidecar in made:
        await sidecar.close()


async def about(sidecar):
    """What the running server says about itself."""
    async with sidecar.running() as process, sidecar.session.get(f"{process.url}/about") as answer:
        return await answer.json()


async def test_it_gets_the_launchs_flags_and_environment_and_a_port_of_its_own(beside):
    seen = await about(beside("--no-webui"))
    port = seen["argv"][3]

    assert port != "1"
    assert seen["argv"] == ["--model", "m.gguf", "--port", port, "--host", "127.0.0.1", "-c", "64", "--no-webui"]
    assert seen["environment"]["MARK"] == "ours"


def test_a_launch_that_named_no_port_gets_one_all_the_same():
    assert on_port(["--model", "m"], 7) == ["--model", "m", "--port", "7", "--host", "127.0.0.1"]
    assert on_port(["--host", "0.0.0.0", "--port", "9"], 7) == ["--host", "127.0.0.1", "--port", "7"]


@pytest.fixture
def started():
    """`started()`: the processes that this test started and that run."""
    before = {child.pid for child in psutil.Process().children()}
    return lambda: [child for child in psutil.Process().children() if child.pid not in before]


async def test_nothing_runs_before_the_first_request_and_then_one_for_all(beside, started, tmp_path):
    sidecar = beside("--slow", str(tmp_path / "ready"))
    assert started() == []
    asking = [asyncio.create_task(about(sidecar)) for _ in range(2)]
    await until(started)
    (tmp_path / "ready").touch()
    first, second = await asyncio.gather(*asking)
    third = await about(sidecar)

    assert first["pid"] == second["pid"] == third["pid"]


async def test_a_shorter_idle_time_ends_one_that_idles_already(beside):
    sidecar = beside(idle=3600.0)
    pid = (await about(sidecar))["pid"]
    async with sidecar.running():
        sidecar.idle_after(0.0)
        await asyncio.sleep(0.05)
        assert not gone(pid), "somebody needs it"
        sidecar.idle_after(3600.0)
    sidecar.idle_after(0.0)
    await until(lambda: gone(pid))


async def test_when_idle_it_ends_and_the_next_request_starts_another(beside):
    sidecar = beside(idle=0.05)
    first = (await about(sidecar))["pid"]
    await until(lambda: gone(first))

    assert (await about(sidecar))["pid"] != first


async def test_while_somebody_needs_it_it_stays(beside):
    sidecar = beside(idle=0.0)
    async with sidecar.running() as process:
        await about(sidecar)
        await asyncio.sleep(0.1)
        assert sidecar.active
        assert process.alive
    assert not sidecar.active
    await until(lambda: not process.alive)


async def test_one_that_crashed_is_replaced_by_the_next_request(beside):
    sidecar = beside()
    async with sidecar.running() as process:
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: not process.alive)

    assert (await about(sidecar))["pid"] != process.pid


async def test_one_that_cannot_start_says_why_in_its_own_words(beside):
    sidecar = beside("--fail")
    for _ in range(2):
        with pytest.raises(EngineError, match=r"code 1 before it was ready:\nloading\nerror: the model is damaged"):
            await about(sidecar)


async def test_a_program_that_is_not_there_is_named(beside):
    with pytest.raises(EngineError, match="/no/such/llama-server"):
        await about(beside(program="/no/such/llama-server"))


async def test_a_client_that_leaves_during_the_start_does_not_end_it_for_others(beside, started, tmp_path):
    sidecar = beside("--slow", str(tmp_path / "ready"))
    leaving, staying = asyncio.create_task(about(sidecar)), asyncio.create_task(about(sidecar))
    await until(started)
    leaving.cancel()
    await until(leaving.done)
    (tmp_path / "ready").touch()

    assert (await staying)["pid"]
    assert leaving.cancelled()


@pytest.mark.parametrize("when", ["running", "starting", "never started"])
async def test_closing_ends_it(beside, started, when):
    sidecar = beside(*(("--slow", "/nowhere") if when == "starting" else ()))
    starting = asyncio.create_task(about(sidecar)) if when != "never started" else None
    if starting:
        await until(lambda: started() if when == "starting" else starting.done())
    children = started()
    await sidecar.close()

    assert len(children) == (0 if starting is None else 1)
    assert all(gone(child.pid) for child in children)
    if when == "starting":
        with pytest.raises((asyncio.CancelledError, EngineError)):
            await starting


PARENT = """
import asyncio, os, sys
from pilotfish.daemon.runner.floor import StockServer
from pilotfish.daemon.runner.sidecar import Sidecar

async def main():
    sidecar = Sidecar(StockServer(sys.argv[1], dict(os.environ)), sys.argv[2:])
    async with sidecar.running() as process:
        async with sidecar.session.get(process.url + "/about") as answer:
            print((await answer.json())["pid"], flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_runner_takes_it_along(server):
    command = [sys.executable, "-c", PARENT, server, *ARGV]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.kill()
    wait_until(lambda: gone(pid))
