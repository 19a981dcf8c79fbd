"""Far ends that some process of this machine is connected to."""

from __future__ import annotations

import socket

import pytest

from pilotfish.daemon.farends.connected import held_here
from tests.waiting import until


@pytest.fixture
def connected():
    """The address of a far end, a connection of this process to it, and the far end's side of that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as near, listener.accept()[0] as far:
            yield "{}:{}".format(*address), near, far


def test_the_one_that_is_connected_is_held_and_others_are_not(connected):
    assert held_here(["127.0.0.1:1", connected[0]]) == (connected[0],)


async def test_one_that_closed_its_side_is_not_held_although_ours_is_open(connected):
    address, near, far = connected
    far.close()
    await until(lambda: held_here([address]) == ())
    assert near.fileno() >= 0


def test_without_far_ends_the_system_is_not_asked(monkeypatch):
    monkeypatch.setattr("psutil.net_connections", None)
    assert held_here([]) == ()
