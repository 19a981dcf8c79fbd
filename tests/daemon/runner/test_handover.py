"""A runner goes when there is a reason and nobody looks, and says so from that moment on."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilotfish.daemon.lab.fakes import FakeClock
from pilotfish.daemon.runner.handover import Handover
from pilotfish.hooks.errors import EngineError


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def served(clock):
    """A handover, a client of a server behind it, and the event that its slow answer waits for."""
    handover, goes_on = Handover(5.0, clock), asyncio.Event()

    async def health(request):
        return web.Response(text="ok")

    async def slow(request):
        await goes_on.wait()
        return web.Response(text="done")

    app = web.Application(middlewares=[handover.watch])
    app.add_routes([web.get("/health", health), web.get("/slow", slow)])
    async with TestClient(TestServer(app)) as client:
        yield handover, client, goes_on


async def moment(handover, reason="nothing to gain"):
    """The reason, if it goes now."""
    try:
        return await asyncio.wait_for(handover.moment(lambda: reason, 0.001), 0.05)
    except TimeoutError:
        return None


async def test_not_while_something_arrived_a_moment_ago(served, clock):
    handover, client, _ = served
    clock.advance(60)
    assert await (await client.get("/health")).text() == "ok"
    assert await moment(handover) is None
    clock.advance(5)
    assert await moment(handover) == "nothing to gain"


async def test_not_while_an_answer_is_under_way(served, clock):
    handover, client, goes_on = served
    asking = asyncio.create_task(client.get("/slow"))
    await asyncio.sleep(0.05)
    clock.advance(60)
    assert await moment(handover) is None
    goes_on.set()
    assert await (await asking).text() == "done"


async def test_not_without_a_reason(served, clock):
    handover, *_ = served
    clock.advance(60)
    assert await moment(handover, "") is None


async def test_from_then_on_it_is_not_healthy(served, clock):
    handover, client, goes_on = served
    clock.advance(60)
    await moment(handover)
    with pytest.raises(EngineError, match="nothing to gain"):
        await handover.watch(_Asked(), None)
    assert (await client.get("/health")).status == 500
    goes_on.set()
    assert (await client.get("/slow")).status == 200


class _Asked:
    path = "/health"
