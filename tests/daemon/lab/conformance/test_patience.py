"""Waiting for a plugin, but not for ever."""

from __future__ import annotations

import threading
import time

import pytest

from pilotfish.daemon.lab.conformance.patience import CallWatch, Hangs
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock


def test_a_job_gives_what_it_returns_or_raises() -> None:
    watch = CallWatch()
    assert watch.run(lambda: 3) == 3
    assert watch.run(lambda: None) is None
    with pytest.raises(KeyError):
        watch.run(lambda: {}["x"])


def test_a_call_that_does_not_return_is_named_and_everything_after_it_refused() -> None:
    watch, release, after = CallWatch(patience=0.05), threading.Event(), threading.Event()

    def job() -> None:
        try:
            with watch.call("propose", "propose(4)"):
                release.wait(30)
            with watch.call("commit", "commit([1])"):
                pass
        except Hangs:
            after.set()

    with pytest.raises(Hangs, match=r"propose\(4\) had not returned after 0.05 s"):
        watch.run(job)
    release.set()
    assert after.wait(30)  # the thread that was left behind makes no further call
    assert "commit" not in watch.slowest


def test_every_job_runs_on_the_same_thread_which_ends_with_the_context() -> None:
    with CallWatch() as watch:
        threads = [watch.run(threading.current_thread) for _ in range(2)]
        assert threads[0] is threads[1] is not threading.current_thread()
    threads[0].join(30)
    assert not threads[0].is_alive()


def test_after_a_call_that_hung_no_job_is_taken() -> None:
    watch, release = CallWatch(patience=0.05), threading.Event()

    def job() -> None:
        with watch.call("open", "open()"):
            release.wait(30)

    for words in ("had not returned", "nothing more is asked"):
        with pytest.raises(Hangs, match=words):
            watch.run(job)
    release.set()


def test_a_job_may_take_long_when_none_of_its_calls_does() -> None:
    watch, pause = CallWatch(patience=0.05), threading.Event()

    def job() -> int:
        with watch.call("propose", "propose(1)"):
            pass
        pause.wait(0.2)
        return 1

    assert watch.run(job) == 1


def test_the_slowest_call_of_each_kind_is_kept_also_of_those_that_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, watch = FakeClock(), CallWatch()
    monkeypatch.setattr(time, "perf_counter", clock)

    def take(operation: str, seconds: float) -> None:
        with watch.call(operation, operation):
            clock.advance(seconds)
            if operation == "close":
                raise KeyError

    for seconds in (2.0, 3.0, 1.0):
        take("open", seconds)
    with pytest.raises(KeyError):
        take("close", 4.0)
    assert watch.slowest == {"open": 3.0, "close": 4.0}


def test_a_call_can_have_a_patience_of_its_own() -> None:
    watch, release = CallWatch(patience=0.02), threading.Event()

    def job() -> bool:
        with watch.call("load", "load()", patience=30):
            return release.wait(0.1)

    assert watch.run(job) is False
