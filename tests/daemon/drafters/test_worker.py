"""The thread of a drafter: in order, alone, and gone when there is nothing to do."""

from __future__ import annotations

import threading

import pytest

from pilotfish.daemon.drafters import worker as module
from pilotfish.daemon.drafters.worker import DrafterWorker, SameThread
from tests.fakes.misbehaviour import RAISED
from tests.waiting import wait_until

SOON = 60.0  # seconds; far more than anything here takes


@pytest.mark.parametrize("error", RAISED)
def test_jobs_run_in_order_on_one_thread_and_one_that_raises_stops_nothing(caplog, error):
    seen, worker = [], DrafterWorker("w")

    def broken():
        raise error

    for job in (lambda: seen.append(1), broken, lambda: seen.append(threading.current_thread().name)):
        worker.post(job)
    assert worker.settle(SOON)
    assert seen == [1, "drafter-w"]
    assert "a call failed" in caplog.text
    worker.end()
    worker.join(SOON)
    assert not worker.alive


@pytest.mark.parametrize("error", RAISED)
def test_a_job_on_the_callers_own_thread_never_raises(caplog, error):
    def broken():
        raise error

    SameThread().post(broken)
    assert "a call failed" in caplog.text


def test_without_work_there_is_no_thread_and_the_next_job_brings_a_new_one(monkeypatch):
    monkeypatch.setattr(module, "REST", 0.01)
    threads, worker = [], DrafterWorker("w")
    worker.post(lambda: threads.append(threading.current_thread()))
    wait_until(lambda: not worker.alive, "its thread stays")
    worker.post(lambda: threads.append(threading.current_thread()))
    assert worker.settle(SOON)
    assert len(set(threads)) == 2
    worker.end()


@pytest.mark.parametrize("posts", [1, 50])
def test_nothing_that_was_posted_is_lost_however_short_the_rest(monkeypatch, posts):
    monkeypatch.setattr(module, "REST", 0.0)
    done, worker = [], DrafterWorker("w")
    for i in range(posts):
        worker.post(lambda i=i: done.append(i))
    assert worker.settle(SOON)
    assert done == list(range(posts))
    worker.end()


def test_where_the_system_has_no_thread_left_a_job_is_refused_and_the_next_is_tried_again(monkeypatch):
    done, worker = [], DrafterWorker("w")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert not worker.post(lambda: done.append(1))
        assert not worker.alive
    assert worker.post(lambda: done.append(2))
    assert worker.settle(SOON)
    assert done == [2]
    worker.end()


def no_thread(thread):
    raise RuntimeError("can't start new thread")
