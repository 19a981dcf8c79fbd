"""A server as a child: it is waited for, heard to the end, stopped, and does not outlive its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
import uvloop

from pilotfish.daemon.processes import child_server
from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.ports import free_port
from tests.daemon.processes.endings import gone, until_gone


@pytest.fixture
async def start():
    """`start(program, ...)`: a child that runs the Python text, stopped after the test."""
    started = []

    async def start(program, environment=None):
        command = [sys.executable, "-uc", program]
        started.append(await ChildServer.start(command, free_port(), "a child", environment))
        return started[-1]

    yield start
    for child in started:
        await child.stop()


async def never():
    return False


async def test_it_comes_up_when_it_is_healthy(start):
    child = await start("import time; time.sleep(600)")
    asked = []

    async def healthy():
        asked.append(child.alive)
        return len(asked) == 3

    assert await child.comes_up(healthy)
    assert asked == [True] * 3


async def test_one_that_ends_first_does_not_and_says_how_and_why(start):
    child = await start("import sys; print('loading'); sys.exit('the model is damaged')")
    assert not await child.comes_up(never)
    assert await child.last_words() == "exit code 1: loading\nthe model is damaged"
    assert child.said == "loading\nthe model is damaged"
    assert not child.alive


async def test_one_that_says_nothing_is_given_up_and_lives_on(start):
    child = await start("import time; time.sleep(600)")
    assert not await child.comes_up(never, silence=0.1)
    assert child.alive


async def test_one_that_was_killed_is_told_by_its_signal(start):
    child = await start("import time; time.sleep(600)")
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    assert await child.last_words() == "ended by signal 9"
    assert child.exit_code == -9


async def test_one_that_lives_on_is_not_waited_for(start, monkeypatch):
    monkeypatch.setattr(child_server, "NOTICE_SECONDS", 0.01)
    child = await start("import time; time.sleep(600)")
    assert await child.last_words() == "is still running"


async def test_a_descendant_that_holds_the_pipe_open_keeps_nobody_waiting(start, monkeypatch):
    monkeypatch.setattr(child_server, "NOTICE_SECONDS", 0.2)
    child = await start("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)")
    async with asyncio.timeout(60):
        await child.wait()
        how, _, descendant = (await child.last_words()).partition(": ")
        await child.stop()
        assert not gone(int(descendant))
        os.kill(int(descendant), signal.SIGKILL)
        until_gone(int(descendant))
        await asyncio.sleep(0.1)  # for the loop to be done with the pipe
    assert how == "exit code 0"


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(600)"


async def test_one_that_ignores_the_wish_is_killed(start, monkeypatch):
    monkeypatch.setattr(child_server, "STOP_SECONDS", 0.1)
    child = await start(STUBBORN)
    assert await child.comes_up(lambda: _said(child, "deaf"))
    await child.stop()
    assert child.exit_code == -signal.SIGKILL
    await child.stop()


async def _said(child, word):
    return child.said == word


async def test_it_is_tied_unless_it_has_an_environment_of_its_own(start):
    program = "import os; print(os.environ.get('PILOTFISH_TIED'), os.environ.get('MARK'))"
    tied, other = await start(program), await start(program, {"MARK": "theirs"})
    assert await tied.last_words() == "exit code 0: stdin None"
    assert await other.last_words() == "exit code 0: None theirs"


async def test_a_ctrl_c_for_this_process_does_not_reach_it(start):
    child = await start("import time; time.sleep(600)")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)


async def test_a_program_that_is_not_there_is_an_error_of_the_system():
    with pytest.raises(OSError, match="No such file"):
        await ChildServer.start(["/no/such"], 1, "a child")


PARENT = """
import asyncio, sys
from pilotfish.daemon.processes.child_server import ChildServer

async def main():
    child = await ChildServer.start([sys.executable, "-c", "import sys; sys.stdin.read()"], 1, "a child")
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_its_standard_input_ends_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    until_gone(pid)


def test_the_runners_own_loop_can_drive_it_too():
    async def lives_and_ends():
        dying = await ChildServer.start([sys.executable, "-c", "raise SystemExit('damaged')"], 1, "a child")
        living = await ChildServer.start([sys.executable, "-c", "import time; time.sleep(600)"], 2, "a child")
        await living.stop()
        return await dying.last_words(), await living.last_words()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        assert loop.run(lives_and_ends()) == ("exit code 1: damaged", "ended by signal 15")
