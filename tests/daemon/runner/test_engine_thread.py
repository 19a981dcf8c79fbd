"""The engine's thread: who has a slot, whose turn it is, and what becomes of everybody when something goes wrong."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner import engine_thread
from pilotfish.daemon.runner import job as job_module
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import ConversationTotals
from tests.daemon.runner.scripted import WORDS, ScriptedGenerator, drain
from tests.fakes.misbehaviour import RAISED
from tests.waiting import SECONDS, until

REQUEST = GenerationRequest((2, 3))


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
    generator.error = None
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
    monkeypatch.setattr(thread, "_begin", broken)
    jobs = [thread.submit(REQUEST) for _ in range(3)]
    gate.set()
    why = await asyncio.wait_for(thread.lost(), SECONDS)
    assert type(error).__name__ in why
    assert thread.waiting == 0
    assert thread.running == {}
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


async def test_as_many_requests_are_answered_at_a_time_as_there_are_slots():
    generator = ScriptedGenerator([WORDS] * 3, gate=threading.Semaphore(0), engine=FakeEngine(slots=2))
    thread = await started(generator)
    jobs = [thread.submit(replace(REQUEST, slot=slot)) for slot in (0, 1, 0)]
    await until(lambda: len(generator.requests) == 2)
    assert (sorted(thread.running), thread.waiting) == ([0, 1], 1)
    generator.gate.release(9)
    assert [await drain(job) for job in jobs] == [WORDS * 3] * 3
    await ended(thread)


async def test_who_waits_for_a_slot_lets_others_pass():
    gate = threading.Semaphore(0)
    generator = ScriptedGenerator([WORDS] * 2, gate=gate, engine=FakeEngine(slots=2))
    thread = await started(generator)
    first = thread.submit(replace(REQUEST, slot=1))
    await until(lambda: generator.requests)
    second, third = (thread.submit(GenerationRequest((slot,), slot=slot)) for slot in (3, 2))  # slots 1 and 0
    gate.release(2)
    await until(lambda: len(generator.requests) == 2)
    assert generator.requests[1] == third.request
    gate.release(4)
    for job in (first, second, third):
        await drain(job)
    assert generator.requests[2] == second.request
    await ended(thread)


async def test_a_reader_that_takes_nothing_holds_only_its_own_answer(monkeypatch):
    monkeypatch.setattr(job_module, "MAX_BACKLOG", len(WORDS))
    generator = ScriptedGenerator([WORDS] * 3, engine=FakeEngine(slots=2))
    thread = await started(generator)
    stalled, read = (thread.submit(replace(REQUEST, slot=slot)) for slot in (0, 1))
    assert await drain(read) == WORDS * 3
    assert list(thread.running) == [0]
    assert await drain(stalled) == WORDS * 3
    await ended(thread)


async def test_a_reader_that_stalls_is_given_up_while_nothing_else_runs(monkeypatch):
    monkeypatch.setattr(job_module, "MAX_BACKLOG", 1)
    monkeypatch.setattr(job_module, "STALLED_AFTER", 0.05)
    monkeypatch.setattr(engine_thread, "LOOK", 0.01)
    generator = ScriptedGenerator([WORDS] * 3)
    thread = await started(generator)
    stalled = thread.submit(REQUEST)
    await until(lambda: generator.cancelled)
    assert await drain(stalled) == WORDS
    assert stalled.outcome().stop_type == "none"
    await ended(thread)


@pytest.mark.parametrize("error", RAISED)
async def test_whatever_one_answer_raises_the_others_go_on(error):
    class OneFails(ScriptedGenerator):
        def begin(self, request, emit, cancelled):
            answering = super().begin(request, emit, cancelled)
            if request.slot == 1:
                answering.turn = lambda: answering._end(error)
            return answering

    generator = OneFails([WORDS] * 3, engine=FakeEngine(slots=3))
    thread = await started(generator)
    jobs = [thread.submit(replace(REQUEST, slot=slot)) for slot in range(3)]
    assert [await drain(job) for job in jobs] == [WORDS * 3, [], WORDS * 3]
    with pytest.raises(Exception) as raised:  # noqa: PT011
        jobs[1].outcome()
    assert error in (raised.value, raised.value.__cause__)
    await ended(thread)


async def ended(thread):
    thread.cancel()
    assert await asyncio.to_thread(thread.join, SECONDS)


async def started(generator):
    thread = EngineThread(lambda: generator, lambda outcome, prompt: None)
    await thread.start()
    return thread


class Rests(FakeEngine):
    """A fake engine that could keep conversations on disk, and counts how often it is asked to."""

    rests = 0

    def remember(self, room):
        pass

    @property
    def remembered(self):
        return ConversationTotals()

    def keep_conversations(self, folder, limit):
        pass

    def rest(self):
        self.rests += 1
        if self.rests == 1:
            raise RuntimeError("the disk is gone")


async def test_while_nobody_asks_for_anything_the_engine_rests_once_after_every_stretch_of_work(monkeypatch):
    monkeypatch.setattr(engine_thread, "REST", 0.01)
    engine = Rests()
    thread = await started(ScriptedGenerator(engine=engine))
    await asyncio.sleep(0.1)
    assert engine.rests == 0, "nothing was asked for yet"
    for count in (1, 2):  # the first one fails, and nobody notices
        assert await drain(thread.submit(REQUEST)) == WORDS
        await until(lambda count=count: engine.rests == count)
    await asyncio.sleep(0.1)
    assert engine.rests == 2
    thread.cancel()
    assert await asyncio.to_thread(thread.join, SECONDS)
