"""Far ends that are connected, and those that are gone."""

from __future__ import annotations

import contextlib
import socket

import pytest

from pilotfish.daemon.farends.connected import held_here, lost
from tests.waiting import until


@pytest.fixture
def connected():
    """The address of a far end, a connection of this process to it, and the far end's side of that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as near, listener.accept()[0] as far:
            yield "{}:{}".format(*address), near, far


def test_one_that_is_connected_is_not_lost(connected):
    assert lost([connected[0]]) == ()
    assert held_here([connected[0]]) == (connected[0],)


def test_one_that_was_never_connected_is_lost_and_the_others_are_not(connected):
    assert lost(["127.0.0.1:1", connected[0], "127.0.0.2:1"]) == ("127.0.0.1:1", "127.0.0.2:1")
    assert held_here(["127.0.0.1:1"]) == ()


async def test_one_that_closed_its_side_is_lost_although_ours_is_open(connected):
    address, near, far = connected
    far.close()
    await until(lambda: lost([address]) == (address,))
    assert near.fileno() >= 0


async def test_one_that_this_side_left_is_lost(connected):
    address, near, far = connected
    near.close()
    assert lost([address]) == (address,)
    with contextlib.suppress(OSError):
        assert far.recv(1) == b""


def test_without_far_ends_the_system_is_not_asked(monkeypatch):
    monkeypatch.setattr("psutil.Process", None)
    monkeypatch.setattr("psutil.net_connections", None)
    assert (lost([]), held_here([])) == ((), ())
