"""A slow network of threads: every byte arrives, in order, later, and an end arrives like a byte."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from pilotfish.daemon.lab.spread.delay_proxy import DelayProxy

DELAY = 0.15  # seconds
SECONDS = 30.0


@contextlib.contextmanager
def listening():
    """A server's socket and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        yield server, server.getsockname()[:2]


@contextlib.contextmanager
def connected(delay):
    """Both ends of a connection through a proxy, and the proxy."""
    with (
        listening() as (server, address),
        DelayProxy(address, delay) as proxy,
        socket.create_connection(near(proxy), SECONDS) as client,
    ):
        accepted, _ = server.accept()
        accepted.settimeout(SECONDS)
        with accepted:
            yield client, accepted, proxy


def near(proxy):
    host, _, port = proxy.endpoint.rpartition(":")
    return host, int(port)


def all_of(connection):
    """What comes until the stream ends."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("way", ["there", "back"])
def test_bytes_come_no_sooner_than_the_delay_in_either_direction(way):
    with connected(DELAY) as (client, accepted, _):
        sender, receiver = (client, accepted) if way == "there" else (accepted, client)
        started = time.monotonic()
        sender.sendall(b"x")
        assert receiver.recv(1) == b"x"
        assert time.monotonic() - started >= DELAY


def test_much_arrives_whole_and_in_order_and_so_does_the_end():
    sent = bytes(range(256)) * 40_000
    with connected(0.01) as (client, accepted, _):

        def send():
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        assert all_of(accepted) == sent
        accepted.sendall(b"and back")
        accepted.close()
        assert all_of(client) == b"and back"


def test_what_was_sent_early_waits_while_what_follows_is_on_its_way_too():
    """A network holds many packets: ten in a row do not take ten delays."""
    with connected(DELAY) as (client, accepted, _):
        client.sendall(b"0")
        accepted.recv(1)  # both ends are there
        started = time.monotonic()
        for number in range(20):
            client.sendall(b"%d" % (number % 10))
            time.sleep(0.001)
        got = b""
        while len(got) < 20:
            got += accepted.recv(64)
        assert got == b"01234567890123456789"
        assert time.monotonic() - started < 20 * DELAY


def test_closing_it_ends_what_is_connected_and_takes_nothing_new():
    with connected(0.0) as (client, accepted, proxy):
        proxy.close()
        proxy.close()
        assert client.recv(1) == accepted.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(near(proxy), SECONDS)


def test_where_nobody_listens_behind_it_the_connection_ends():
    with listening() as (_, address):
        pass
    with DelayProxy(address, 0.0) as proxy, socket.create_connection(near(proxy), SECONDS) as client:
        assert client.recv(1) == b""


def test_a_receiver_that_goes_is_told_to_the_sender():
    with connected(0.0) as (client, accepted, _):
        accepted.close()
        with pytest.raises(ConnectionError):
            client.sendall(bytes(1 << 28))
