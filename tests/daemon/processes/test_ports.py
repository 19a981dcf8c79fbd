"""Ports that can be listened on."""

from __future__ import annotations

import socket

from pilotfish.daemon.processes.ports import free_port


def test_a_free_port_can_be_listened_on():
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        assert listener.getsockname()[1] > 1023
