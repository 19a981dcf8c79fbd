"""Loading, and requests that share slots."""

from __future__ import annotations

import asyncio
import threading

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilotfish.daemon.runner.job import Job
from pilotfish.daemon.runner.server import Server
from pilotfish.hooks.errors import BrokenModel
from tests.daemon.runner.scripted import (
    BODY,
    WORDS,
    ScriptedGenerator,
    ask,
    card,
    events,
    serving,
    until_waiting,
)
from tests.waiting import SECONDS, until


async def test_every_path_answers_503_while_the_model_loads():
    gate = threading.Event()
    generator = ScriptedGenerator()

    def load():
        assert gate.wait(SECONDS)
        return generator, card(generator.engine)

    server = Server(load)
    async with TestClient(TestServer(server.app)) as client:
        loaded = server.start()
        during = [await client.get("/health"), await client.post("/completion", json=BODY), await client.get("/props")]
        bodies = [await answer.json() for answer in during]
        gate.set()
        await loaded
        after = await client.get("/health")
        body_after = await after.json()
        server.cancel()
    server.join(SECONDS)

    loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    assert [answer.status for answer in during] == [503, 503, 503]
    assert bodies == [loading] * 3
    assert (after.status, body_after) == (200, {"status": "ok"})


async def test_a_failed_load_is_raised_to_whoever_started_it():
    def load():
        raise BrokenModel("fake.gguf is cut short; pull it again")

    server = Server(load)
    with pytest.raises(BrokenModel, match="pull it again"):
        await server.start()
    assert server.join(SECONDS)


async def test_requests_are_answered_in_the_order_they_came():
    gate = threading.Semaphore(0)
    generator = ScriptedGenerator(gate=gate)
    async with serving(generator) as client:
        tasks = []
        for i in range(4):
            tasks.append(asyncio.create_task(ask(client, prompt=[2 + i], n_predict=3)))
            await until(lambda: generator.requests)
            await until_waiting(client, i)
        metrics = await (await client.get("/metrics")).text()
        slots = await (await client.get("/slots")).json()
        busy = await client.get("/slots?fail_on_no_slot=1")
        gate.release(4)
        answers = await asyncio.gather(*tasks)
        free = await client.get("/slots?fail_on_no_slot=1")

    assert "llamacpp:requests_processing 1.0" in metrics
    assert "llamacpp:requests_deferred 3.0" in metrics
    assert (len(slots), slots[0]["is_processing"]) == (1, True)
    assert (busy.status, free.status) == (503, 200)
    assert [status for status, _ in answers] == [200] * 4
    assert [request.prompt for request in generator.requests] == [(2,), (3,), (4,), (5,)]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_slot(stream):
    generator = ScriptedGenerator([WORDS] * 100, gate=threading.Semaphore(1 if stream else 0))
    async with serving(generator) as client:
        leaving = asyncio.create_task(client.post("/completion", json={**BODY, "stream": stream}))
        await until(lambda: generator.requests)
        if stream:
            response = await leaving
            await response.content.readline()
            response.close()
        else:
            leaving.cancel()
        await until(lambda: generator.cancelled)
        assert generator.ended.acquire(timeout=SECONDS)
        health = await client.get("/health")

    assert health.status == 200
    assert len(generator.cancelled) == 1


async def test_a_waiting_request_whose_client_left_is_never_begun(monkeypatch):
    left, cancel = [], Job.cancel
    monkeypatch.setattr(Job, "cancel", lambda job: (cancel(job), left.append(job)))
    gate = threading.Semaphore(0)
    generator = ScriptedGenerator(gate=gate)
    async with serving(generator) as client:
        first = asyncio.create_task(ask(client, prompt=[2], n_predict=3))
        await until(lambda: generator.requests)
        second = asyncio.create_task(ask(client, prompt=[3], n_predict=3))
        await until_waiting(client, 1)
        third = asyncio.create_task(ask(client, prompt=[4], n_predict=3))
        await until_waiting(client, 2)
        second.cancel()
        await until(lambda: left)
        gate.release(2)
        await first
        await third

    assert [request.prompt for request in generator.requests] == [(2,), (4,)]


async def test_stopping_ends_the_running_answer_and_refuses_the_next():
    generator = ScriptedGenerator([WORDS] * 100, gate=threading.Semaphore(1))
    server = Server(lambda: (generator, card(generator.engine)))
    async with TestClient(TestServer(server.app)) as client:
        await server.start()
        running = asyncio.create_task(events(client, **BODY))
        await until(lambda: generator.requests)
        waiting = asyncio.create_task(ask(client, **BODY))
        await until_waiting(client, 1)
        server.cancel()
        *_, final = await running
        status, body = await waiting
    assert server.join(SECONDS)

    assert (final["stop"], final["stop_type"]) == (True, "none")
    assert (status, body["error"]["type"]) == (500, "server_error")
    assert "stopping" in body["error"]["message"]
