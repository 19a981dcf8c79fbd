"""Connections that a server of ours accepts send at once what is written."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.rpchost.far_listening import FarAddress, _bound
from tests.daemon.http.serving_process import LOOPS


async def of_any_server() -> socket.socket:
    return (await listeners("127.0.0.1", 0))[0]


async def of_a_far_end() -> socket.socket:
    return await _bound(FarAddress("127.0.0.1", 0))


class Accepted(asyncio.Protocol):
    """Tells of the first connection whether it waits for confirmations."""

    def __init__(self, delay: asyncio.Future[int]) -> None:
        self.delay = delay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = transport.get_extra_info("socket")
        self.delay.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("listening", [of_any_server, of_a_far_end])
def test_nothing_waits_for_the_other_side_to_confirm_what_came_before(kind, listening):
    async def accept() -> int:
        loop = asyncio.get_running_loop()
        with contextlib.closing(await listening()) as listener:
            delay = loop.create_future()
            async with await loop.create_server(lambda: Accepted(delay), sock=listener):
                with socket.create_connection(listener.getsockname()[:2]):
                    found: int = await asyncio.wait_for(delay, 60)
                    return found

    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        assert runner.run(accept()) != 0
