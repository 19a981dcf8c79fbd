"""The thread that an engine's calls share."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from pilotfish.hooks.errors import DeviceBusy, EngineError
from pilotfish.plugins.drafters._drafter_thread import DrafterThread


def fail(error: Exception) -> None:
    raise error


def test_every_call_runs_on_the_same_thread_whoever_calls() -> None:
    thread = DrafterThread("engine")
    with ThreadPoolExecutor(4) as callers:
        found = set(callers.map(lambda _: thread.run(threading.get_ident), range(40)))
    assert len(found) == 1
    assert found != {threading.get_ident()}


def test_it_does_not_keep_the_process_from_ending() -> None:
    assert DrafterThread("engine").run(threading.current_thread).daemon


def test_errors_reach_the_caller_and_the_next_call_works() -> None:
    thread = DrafterThread("engine")
    with pytest.raises(DeviceBusy, match="held"):
        thread.run(fail, DeviceBusy("held"))
    with pytest.raises(EngineError, match=r"engine failed: AssertionError$"):
        thread.run(fail, AssertionError())
    with pytest.raises(EngineError, match="engine failed: ValueError: no"):
        thread.run(fail, ValueError("no"))
    assert thread.run(max, 2, 3) == 3


def test_what_a_call_was_given_is_not_kept() -> None:
    class Weights:
        pass

    thread, weights = DrafterThread("engine"), Weights()
    gone = weakref.ref(weights)
    thread.run(id, weights)
    del weights
    thread.run(gc.collect)
    assert gone() is None
