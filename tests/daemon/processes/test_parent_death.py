"""A tied child does not outlive its parent."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import is_gone, wait_until

CHILD = (
    "import asyncio\n"
    "from pilotfish.daemon.processes.parent_death import when_let_go\n"
    "async def main():\n"
    "    gone = asyncio.Event()\n"
    "    when_let_go(gone.set)\n"
    "    print('ready', flush=True)\n"
    "    await gone.wait()\n"
    "asyncio.run(main())\n"
)
PARENT = (
    "import subprocess, sys, time\n"
    "from pilotfish.daemon.processes.parent_death import tied_environment\n"
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env=tied_environment(),\n"
    "                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "child.stdout.readline()\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_ends_with_the_parent(how):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(how)
    parent.wait()
    wait_until(lambda: is_gone(child), "the child lives on")
