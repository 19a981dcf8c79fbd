"""A tied child does not outlive its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

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
    deadline = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
