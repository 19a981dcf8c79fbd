"""Clients that hold on to what they do not use."""

from __future__ import annotations

import pytest

from pilotfish.daemon.http.connection import Limits
from tests.fakes.peers import crowding, not_reading
from tests.waiting import until

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "flood"}], "stream": True}


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_a_client_that_stops_reading_lets_the_model_go(start, path):
    async with start(limits=Limits(stall=0.2), max_loaded=1) as front:
        with not_reading(front.settings.port, path, CHAT):
            await until(lambda: front.journal_of("cancelled"))
            # One model at a time: this one is only loaded once the other is free.
            status, _ = await front.ask("/api/generate", {"model": "other:v2", "prompt": "echo:x", "stream": False})
            assert status == 200


async def test_half_heads_are_not_in_the_way(start):
    async with start(limits=Limits(connections=16)) as front, crowding(front.settings.port, 100):
        assert await front.get("/api/version")
