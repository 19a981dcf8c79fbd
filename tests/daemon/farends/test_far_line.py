"""How a connection to a far end is left."""

from __future__ import annotations

import socket
import time

import pytest

from pilotfish.daemon.farends.far_line import FarLine


def _ask(address, asks_rpc):
    with FarLine(address, time.monotonic() + 0.3, asks_rpc=asks_rpc) as line:
        line.send(b"a question")
        line.receive(1)


def left_late(*, asks_rpc):
    """What a server reads that takes up a connection after it was left, and what comes then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with pytest.raises(TimeoutError):
            _ask(address, asks_rpc)
        taken, _ = listener.accept()
        with taken:
            taken.settimeout(10)
            assert taken.recv(10) == b"a question"
            return taken.recv(1)


def test_a_question_that_was_not_taken_up_is_withdrawn_by_a_reset():
    with pytest.raises(ConnectionResetError):
        left_late(asks_rpc=True)


def test_any_other_connection_ends_in_order():
    assert left_late(asks_rpc=False) == b""
