"""A tied child does not outlive its parent, whatever it is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from pilotfish.daemon.processes.parent_death import when_orphaned
from tests.daemon.processes.endings import until_gone
from tests.waiting import SECONDS

CHILDREN = {
    "its event loop turns": """
import asyncio
from pilotfish.daemon.processes.parent_death import when_let_go

async def main():
    let_go = asyncio.Event()
    when_let_go(let_go.set)
    print("ready", flush=True)
    await let_go.wait()

asyncio.run(main())
""",
    "it computes and has no loop": """
import time
from pilotfish.daemon.processes.parent_death import end_with_stdin
end_with_stdin()
print("ready", flush=True)
time.sleep(600)
""",
    "an engine keeps the interpreter": """
import ctypes
from pilotfish.daemon.processes.parent_death import end_at_once_when_let_go
end_at_once_when_let_go()
print("ready", flush=True)
ctypes.PyDLL(None).sleep(600)
""",
}
PARENT = """
import subprocess, sys, time
from pilotfish.daemon.processes.parent_death import tied_environment
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=tied_environment(),
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("while_", CHILDREN)
def test_the_child_ends_with_the_parent(how, while_):
    if while_ == "an engine keeps the interpreter" and sys.platform != "linux":
        pytest.skip("only Linux's kernel ends a process for what happens to a pipe")
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILDREN[while_]], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(how)
    until_gone(pid)


def test_a_process_that_was_not_tied_is_left_alone():
    program = """
import asyncio
from pilotfish.daemon.processes.parent_death import end_at_once_when_let_go, when_let_go

async def main():
    end_at_once_when_let_go()
    when_let_go(lambda: print("let go", flush=True))
    await asyncio.sleep(0.2)
    print("still here", flush=True)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], input="", capture_output=True, text=True, check=True)
    assert done.stdout == "still here\n"


async def test_a_child_of_its_parent_is_not_called_back_and_an_orphan_is():
    called = asyncio.Event()
    async with when_orphaned(os.getppid(), called.set), when_orphaned(None, called.set):
        await asyncio.sleep(0.05)
        assert not called.is_set()
    async with when_orphaned(os.getpid(), called.set):  # which is nobody's own parent
        await asyncio.wait_for(called.wait(), SECONDS)
