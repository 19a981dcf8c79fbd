"""The way from the engine's thread to the event loop: order, bounds, and readers that stall or leave."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, StopType, Timings
from pilotfish.daemon.runner import engine_thread
from pilotfish.daemon.runner.engine_thread import EngineThread, Job
from pilotfish.hooks.errors import EngineError
from tests.daemon.runner.scripted import WORDS, ScriptedGenerator
from tests.fakes.misbehaviour import RAISED
from tests.waiting import SECONDS

REQUEST = GenerationRequest((2, 3))
DONE = Outcome(StopType.EOS, Timings())


async def drain(job):
    found = []
    while (batch := await asyncio.wait_for(job.next(), SECONDS)) is not None:
        found += batch
    return found


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


async def test_a_full_backlog_holds_the_engine_until_the_reader_takes_something(monkeypatch):
    monkeypatch.setattr(engine_thread, "MAX_BACKLOG", 3)
    job = Job(REQUEST)
    emitted = []
    twice = threading.Event()

    def engine():
        for i in range(4):
            job.emit([OutputToken(i), OutputToken(i)])
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


@pytest.mark.parametrize("error", RAISED)
async def test_whatever_a_generation_raises_its_job_ends_and_the_next_is_answered(error):
    generator = ScriptedGenerator(error=error)
    thread = await started(generator)
    job = thread.submit(REQUEST)
    assert await drain(job) == []
    with pytest.raises(Exception) as raised:  # noqa: PT011  # an Exception, whatever it was
        job.outcome()
    assert error in (raised.value, raised.value.__cause__)
    generator._error = None
    assert await drain(thread.submit(REQUEST)) == WORDS
    assert thread.failure == ""
    thread.cancel()
    assert await asyncio.to_thread(thread.join, SECONDS)


async def test_an_answer_that_cannot_be_counted_is_an_answer(caplog):
    def broken(outcome, prompt):
        raise RuntimeError("no metrics")

    thread = EngineThread(ScriptedGenerator, broken)
    await thread.start()
    for _ in range(2):
        job = thread.submit(REQUEST)
        assert await drain(job) == WORDS
        assert job.outcome().stop_type == "limit"
    thread.cancel()
    assert await asyncio.to_thread(thread.join, SECONDS)


@pytest.mark.parametrize("error", RAISED)
async def test_whatever_loading_raises_whoever_waits_for_it_is_told(error):
    def load():
        raise error

    thread = EngineThread(load, lambda outcome, prompt: None)
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await asyncio.wait_for(thread.start(), SECONDS)
    assert error in (raised.value, raised.value.__cause__)


@pytest.mark.parametrize("error", RAISED)
async def test_an_engine_that_cannot_be_freed_does_not_keep_the_end_from_coming(error, caplog):
    class Stuck(ScriptedGenerator):
        def close(self):
            raise error

    thread = await started(Stuck())
    thread.cancel()
    assert await asyncio.to_thread(thread.join, SECONDS)
    assert "could not be freed" in caplog.text


@pytest.mark.parametrize("error", RAISED)
async def test_a_thread_that_is_lost_ends_every_job_and_says_so(monkeypatch, error):
    """Nothing that a job does ends the thread; should it end nevertheless, nobody waits for it."""
    gate = threading.Event()

    def broken(generator, job):
        gate.wait(SECONDS)
        raise error

    thread = await started(ScriptedGenerator())
    monkeypatch.setattr(thread, "_answer", broken)
    jobs = [thread.submit(REQUEST) for _ in range(3)]
    gate.set()
    why = await asyncio.wait_for(thread.lost(), SECONDS)
    assert type(error).__name__ in why
    assert thread.waiting == 0
    assert thread.running is None
    for job in [*jobs, thread.submit(REQUEST)]:
        assert await asyncio.wait_for(drain(job), SECONDS) == []
        with pytest.raises(EngineError, match="thread has ended"):
            job.outcome()
    assert await asyncio.to_thread(thread.join, SECONDS)


async def test_a_thread_that_was_told_to_end_is_not_lost():
    thread = await started(ScriptedGenerator())
    lost = asyncio.create_task(thread.lost())
    thread.cancel()
    assert await asyncio.to_thread(thread.join, SECONDS)
    await asyncio.sleep(0)
    assert not lost.done()
    assert thread.failure == ""
    with pytest.raises(EngineError, match="is stopping"):
        thread.submit(REQUEST).outcome()
    lost.cancel()


async def started(generator):
    thread = EngineThread(lambda: generator, lambda outcome, prompt: None)
    await thread.start()
    return thread
