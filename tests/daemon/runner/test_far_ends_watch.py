"""A runner whose far ends are lost: every request ends with the reason, and the process is told to end."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.farends.looking import FarEndSeen
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner import far_ends_watch
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.daemon.runner.far_ends_watch import end_with_far_ends, watch_far_ends
from pilotfish.hooks.errors import EngineError
from tests.daemon.runner.scripted import ScriptedGenerator, drain
from tests.waiting import SECONDS

REQUEST = GenerationRequest((2, 3))


class Far:
    """An engine over two far ends."""

    far_ends = ("a:1", "b:2")

    def __init__(self):
        self.missing = ()
        self.told = None

    def gone(self):
        return self.missing

    def when_lost(self, call):
        self.told = call


class FarEngine(FakeEngine):
    """The same as a whole engine."""

    far_ends = ("a:1", "b:2")

    def gone(self):
        return ()

    def when_lost(self, call):
        """Never is."""


def busy(far_ends):
    """What is seen of far ends that serve somebody."""
    return [FarEndSeen(far_end, busy="1.2.3.4:5", trouble="it serves somebody") for far_end in far_ends]


def silent(far_ends):
    """The first one computes, the others do not answer."""
    return [*busy(far_ends[:1]), *(FarEndSeen(far_end, trouble="it does not answer") for far_end in far_ends[1:])]


def stuck(seconds):
    """Hosts that serve somebody, and of the second one the process has not answered for so long."""

    def look(far_ends):
        first, second = busy(far_ends)
        return [first, replace(second, silent_s=seconds)]

    return look


class Hanging(ScriptedGenerator):
    """Its forwards never come back before they are let go."""

    def __init__(self):
        super().__init__()
        self.inside, self.let_go = threading.Event(), threading.Event()

    def turn(self, answerings):
        self.inside.set()
        self.let_go.wait(SECONDS)
        super().turn(answerings)


@pytest.fixture
async def hanging():
    generator = Hanging()
    thread = EngineThread(lambda: generator, lambda outcome, prompt: None)
    await thread.start()
    yield thread, generator
    generator.let_go.set()


async def ended(thread, *jobs):
    """What the jobs and whoever watches the thread are told; that it is not waited for."""
    for job in jobs:
        await asyncio.wait_for(drain(job), SECONDS)
        with pytest.raises(EngineError) as raised:
            job.outcome()
        assert str(raised.value) == thread.failure
    assert await asyncio.wait_for(thread.lost(), SECONDS) == thread.failure
    assert not thread.join(SECONDS)
    return thread.failure


async def test_when_the_library_is_about_to_end_the_process_requests_end_first(hanging, monkeypatch):
    thread, generator = hanging
    monkeypatch.setattr(far_ends_watch, "GOODBYE", 0.01)
    engine = Far()
    end_with_far_ends(thread, engine)
    running, waiting = thread.submit(REQUEST), thread.submit(REQUEST)
    await asyncio.to_thread(generator.inside.wait, SECONDS)
    await asyncio.to_thread(engine.told, "the far end b:2 was lost")
    later = thread.submit(REQUEST)
    assert await ended(thread, running, waiting, later) == "the far end b:2 was lost"


async def test_far_ends_that_are_silent_while_something_is_computed_are_given_up(hanging):
    thread, generator = hanging
    job = thread.submit(REQUEST)
    await asyncio.to_thread(generator.inside.wait, SECONDS)
    looks = [busy, silent]
    watching = watch_far_ends(thread, Far(), 0.05, 0.01, lambda far_ends: looks.pop(0)(far_ends))
    await asyncio.wait_for(watching, SECONDS)
    assert not looks
    assert "a:1, b:2 were silent" in await ended(thread, job)


async def test_one_whose_process_is_stuck_is_given_up_although_its_host_is_there(hanging):
    thread, generator = hanging
    job = thread.submit(REQUEST)
    await asyncio.to_thread(generator.inside.wait, SECONDS)
    looks = [stuck(1.0), stuck(3.1)]
    watching = watch_far_ends(thread, Far(), 0.2, 0.01, lambda far_ends: looks.pop(0)(far_ends))
    await asyncio.wait_for(watching, SECONDS)
    assert not looks
    assert "rpc_deadline_s" not in await ended(thread, job)


async def test_far_ends_that_say_they_compute_are_waited_for_much_longer_and_not_for_ever(hanging):
    thread, generator = hanging
    job = thread.submit(REQUEST)
    await asyncio.to_thread(generator.inside.wait, SECONDS)
    looked = []
    watching = watch_far_ends(thread, Far(), 0.05, 0.01, lambda far_ends: looked.append(1) or busy(far_ends))
    await asyncio.wait_for(watching, SECONDS)
    assert looked
    assert "rpc_deadline_s" in await ended(thread, job)


async def test_nobody_waits_for_ever_for_an_engine_that_other_machines_keep_from_being_freed():
    generator, let_go = ScriptedGenerator(engine=FarEngine()), threading.Event()
    thread = EngineThread(lambda: generator, lambda outcome, prompt: None)
    await thread.start()
    generator.close = lambda: let_go.wait(SECONDS) and None  # type: ignore[method-assign]
    thread.cancel()
    assert not thread.join(0.2)
    let_go.set()


async def test_one_that_ends_while_nothing_is_computed_ends_the_runner():
    thread = EngineThread(ScriptedGenerator, lambda outcome, prompt: None)
    await thread.start()
    engine = Far()
    watching = asyncio.create_task(watch_far_ends(thread, engine, 60.0, poll_seconds=0.01))
    await drain(thread.submit(REQUEST))
    assert not watching.done()
    engine.missing = ("b:2",)
    await asyncio.wait_for(watching, SECONDS)
    assert "the far end b:2 has ended" in await ended(thread)
    thread.cancel()
