"""A program that must not outlive its parent, and knows nothing of that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pilotfish.daemon.processes import tied
from tests.daemon.processes.endings import until_gone

WATCH = "import sys; from pilotfish.daemon.processes import tied; sys.exit(tied.watch(int(sys.argv[1]), sys.argv[2:]))"
PROGRAM = (
    "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}.'); time.sleep(float(sys.argv[2])); sys.exit(5)"
)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("how", ["its parent went", "it was told to end", "the program ended"])
def test_where_the_kernel_does_not_help_a_watchman_does(tmp_path, how, ending):
    said = tmp_path / "pid"
    lasts = "0" if how == "the program ended" else "600"
    command = [sys.executable, "-c", WATCH, str(int(ending)), sys.executable, "-c", PROGRAM, str(said), lasts]
    watchman = subprocess.Popen(command, stdin=subprocess.PIPE)
    pid = _pid_in(said)
    if how == "its parent went":
        watchman.stdin.close()
    if how == "it was told to end":
        watchman.terminate()

    until_gone(pid)
    code = watchman.wait(60)
    watchman.stdin.close()
    assert code == {"its parent went": 256 - ending, "it was told to end": 256 - 15, "the program ended": 5}[how]


def _pid_in(file):
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith(".")):
        assert time.monotonic() < deadline, "the program never started"
        time.sleep(0.01)
    return int(file.read_text()[:-1])


PARENT = """
import signal, subprocess, sys, time
from pilotfish.daemon.processes.tied import tied_command
command = tied_command(["/bin/sh", "-c", sys.argv[1]], signal.Signals(int(sys.argv[2])))
child = subprocess.Popen(command, stdin=subprocess.PIPE)
time.sleep(600)
"""
ALONE = "echo $$; exec sleep 600"
WITH_A_CHILD = "sleep 600 & trap 'kill $!; exit' TERM; echo $!; wait"


@pytest.mark.parametrize(("program", "ending"), [(ALONE, signal.SIGKILL), (WITH_A_CHILD, signal.SIGTERM)])
def test_a_killed_parent_takes_it_along_and_what_it_started_where_it_has_time(program, ending):
    words = [sys.executable, "-c", PARENT, program, str(int(ending))]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    until_gone(pid)


def test_a_parent_that_is_gone_already_starts_nothing(tmp_path):
    made = tmp_path / "made"
    command = [sys.executable, "-IS", tied.__file__, "1", "9", "/usr/bin/touch", str(made)]
    assert subprocess.run(command, check=False).returncode == 1
    assert not made.exists()


def test_what_python_ignores_the_program_does_not():
    shell = ["/bin/sh", "-c", "kill -PIPE $$; echo survived"]
    done = subprocess.run(tied.tied_command(shell), capture_output=True, text=True, check=False)

    assert done.stdout == ""
    assert done.returncode == -signal.SIGPIPE


def test_it_gets_its_own_arguments_and_the_environment():
    shell = ["/bin/sh", "-c", 'echo "$0 $1 $MARK"', "a b", "c"]
    environment = {**os.environ, "MARK": "ours"}
    done = subprocess.run(tied.tied_command(shell), env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "a b c ours\n"


def test_a_program_that_is_not_there_is_named():
    done = subprocess.run(tied.tied_command(["/no/such"]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "/no/such: No such file or directory\n")
