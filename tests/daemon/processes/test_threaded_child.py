"""A child that a thread listens to."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from pilotfish.daemon.processes import threaded_child
from pilotfish.daemon.processes.threaded_child import ThreadedChild
from tests.daemon.processes.endings import gone


@pytest.fixture
def start():
    """`start(program)`: a child that runs the Python text, stopped after the test; its messages, and its end."""
    started = []

    def start(program):
        said_ready, ended = threading.Event(), threading.Event()

        def is_message(line):
            if line == "ready":
                said_ready.set()
            return line == "ready"

        started.append(ThreadedChild([sys.executable, "-uc", program], "a child", is_message, ended.set))
        return started[-1], said_ready, ended

    yield start
    for child in started:
        child.stop()


def test_a_message_is_handed_over_and_the_words_are_kept(start):
    child, said_ready, ended = start("print('loading'); print('ready'); print('damaged'); raise SystemExit(3)")
    assert ended.wait(60)
    assert said_ready.is_set()
    assert child.last_words() == "ended with code 3: loading / damaged"
    assert child.exit_code == 3


def test_one_that_was_killed_is_told_by_its_signal(start):
    child, *_ = start("import time; time.sleep(600)")
    os.kill(child.pid, signal.SIGKILL)
    assert child.has_ended()
    assert child.last_words() == "ended by signal 9"


def test_one_that_runs_has_not_ended(start, monkeypatch):
    monkeypatch.setattr(threaded_child, "NOTICE_SECONDS", 0.01)
    child, *_ = start("import time; time.sleep(600)")
    assert not child.has_ended()
    assert child.last_words() == "is still running"


def test_one_that_ignores_the_wish_is_killed(start, monkeypatch):
    monkeypatch.setattr(threaded_child, "STOP_SECONDS", 0.1)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    child, said_ready, _ = start(program)
    assert said_ready.wait(60)
    child.stop()
    assert child.exit_code == -signal.SIGKILL
    assert gone(child.pid)
    child.stop()


def test_it_is_tied_and_a_ctrl_c_for_this_process_does_not_reach_it(start):
    child, *_ = start("import os; print(os.environ['PILOTFISH_TIED'], os.getpgid(0) == os.getpid())")
    assert child.last_words() == "ended with code 0: stdin True"


def test_a_program_that_is_not_there_is_an_error_of_the_system():
    with pytest.raises(OSError, match="/no/such"):
        ThreadedChild(["/no/such"], "a child", lambda line: False, lambda: None)
