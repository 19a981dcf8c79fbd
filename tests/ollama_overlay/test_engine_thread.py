"""The way from the engine's thread to the event loop: order, bounds, and readers that stall or leave."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pilotfish.daemon.generation import Emission, GenerationRequest, Outcome, Timings
from pilotfish.ollama_overlay import engine_thread
from pilotfish.ollama_overlay.engine_thread import EngineThread, Job
from tests.ollama_overlay.scripted import WORDS, ScriptedGenerator

REQUEST = GenerationRequest((2, 3))
DONE = Outcome("eos", Timings())


async def drain(job):
    found = []
    while (batch := await job.next()) is not None:
        found += batch
    return found


async def test_everything_emitted_arrives_in_order_and_then_the_outcome():
    job = Job(REQUEST)
    emissions = [Emission(i % 30, str(i)) for i in range(10_000)]

    def engine():
        for start in range(0, len(emissions), 7):
            job.emit(emissions[start : start + 7])
        job.finish(DONE)

    thread = threading.Thread(target=engine)
    thread.start()
    assert await drain(job) == emissions
    assert job.outcome() == DONE
    thread.join()


async def test_an_error_of_the_generation_is_raised_when_asked_how_it_ended():
    job = Job(REQUEST)
    job.finish(ValueError("broken"))
    assert await drain(job) == []
    with pytest.raises(ValueError, match="broken"):
        job.outcome()


async def test_a_full_backlog_holds_the_engine_until_the_reader_takes_something(monkeypatch):
    monkeypatch.setattr(engine_thread, "MAX_BACKLOG", 3)
    job = Job(REQUEST)
    emitted = []
    twice = threading.Event()

    def engine():
        for i in range(4):
            job.emit([Emission(i), Emission(i)])
            emitted.append(i)
            if i == 1:
                twice.set()
        job.finish(DONE)

    thread = threading.Thread(target=engine)
    thread.start()
    assert await asyncio.to_thread(twice.wait, 60)
    await asyncio.sleep(0.05)
    assert emitted == [0, 1]  # the third waits for room
    assert [e.token for e in await drain(job)] == [0, 0, 1, 1, 2, 2, 3, 3]
    thread.join()


async def test_a_reader_that_stalls_is_given_up(monkeypatch):
    monkeypatch.setattr(engine_thread, "MAX_BACKLOG", 1)
    monkeypatch.setattr(engine_thread, "STALLED_AFTER", 0.05)
    job = Job(REQUEST)
    job.emit(WORDS)
    await asyncio.to_thread(job.emit, WORDS)
    assert job.cancelled()


async def test_cancelling_frees_an_engine_that_waits_for_the_reader(monkeypatch):
    monkeypatch.setattr(engine_thread, "MAX_BACKLOG", 1)
    job = Job(REQUEST)
    job.emit(WORDS)
    blocked = asyncio.create_task(asyncio.to_thread(job.emit, WORDS))
    await asyncio.sleep(0.05)
    assert not blocked.done()
    job.cancel()
    await asyncio.wait_for(blocked, 60)


async def test_every_finished_answer_is_reported_on_the_loop():
    seen = []
    thread = EngineThread(ScriptedGenerator, lambda outcome, prompt: seen.append((outcome.stop_type, prompt)))
    await thread.start()
    job = thread.submit(REQUEST)
    assert await drain(job) == WORDS
    thread.cancel()
    assert thread.join(60)
    await asyncio.sleep(0)
    assert seen == [("limit", 2)]
