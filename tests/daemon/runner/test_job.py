"""The way from the engine's thread to the event loop: order, bounds, and readers that stall or leave."""

from __future__ import annotations

import threading

import pytest

from pilotfish.daemon.core.generation import GenerationRequest, OutputToken
from pilotfish.daemon.runner import job as job_module
from pilotfish.daemon.runner.job import Job
from tests.daemon.runner.scripted import DONE, WORDS, drain

REQUEST = GenerationRequest((2, 3))


async def test_everything_emitted_arrives_in_order_and_then_the_outcome():
    job = Job(REQUEST)
    output_tokens = [OutputToken(i % 30, str(i)) for i in range(10_000)]

    def engine():
        for start in range(0, len(output_tokens), 7):
            job.emit(output_tokens[start : start + 7])
        job.finish(DONE)

    thread = threading.Thread(target=engine)
    thread.start()
    assert await drain(job) == output_tokens
    assert job.outcome() == DONE
    thread.join()


async def test_an_error_of_the_generation_is_raised_when_asked_how_it_ended():
    job = Job(REQUEST)
    job.finish(ValueError("broken"))
    assert await drain(job) == []
    with pytest.raises(ValueError, match="broken"):
        job.outcome()


async def test_a_full_backlog_gets_no_turn_until_the_reader_takes_something(monkeypatch):
    monkeypatch.setattr(job_module, "MAX_BACKLOG", 3)
    stirred = []
    job = Job(REQUEST, lambda: stirred.append(True))
    for i in range(2):
        assert job.may_go_on()
        job.emit([OutputToken(i), OutputToken(i)])
    assert not job.may_go_on()
    assert not stirred
    assert [token.token for token in await job.next()] == [0, 0, 1, 1]
    assert job.may_go_on()
    assert stirred


async def test_a_reader_that_stalls_is_given_up(monkeypatch):
    monkeypatch.setattr(job_module, "MAX_BACKLOG", 1)
    monkeypatch.setattr(job_module, "STALLED_AFTER", 0.0)
    job = Job(REQUEST)
    job.emit(WORDS)
    assert job.may_go_on()
    assert job.cancelled()


async def test_a_request_whose_reader_left_may_go_on_to_its_end(monkeypatch):
    monkeypatch.setattr(job_module, "MAX_BACKLOG", 1)
    stirred = []
    job = Job(REQUEST, lambda: stirred.append(True))
    job.emit(WORDS)
    assert not job.may_go_on()
    job.cancel()
    assert job.may_go_on()
    assert stirred
