"""Whose a connection is, by the system's own table."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from pilotfish.daemon.http import peer_owner
from pilotfish.daemon.http.peer_owner import owner_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
V4 = "   0: {local} {remote} 01 00000000:00000000 00:00000000 00000000  {user}        0 4711 1 0 20 4 30 10 -1\n"


def table_address(text: str) -> str:
    """As the kernel writes it: words in this machine's order."""
    raw = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    return "".join(f"{int.from_bytes(raw[i : i + 4], sys.byteorder):08X}" for i in range(0, len(raw), 4))


@pytest.fixture
def tables(tmp_path, monkeypatch):
    def write(*rows):
        lines = [
            V4.format(local=f"{table_address(a)}:{p:04X}", remote=f"{table_address(b)}:{q:04X}", user=user)
            for a, p, b, q, user in rows
        ]
        (tmp_path / "tcp").write_text(HEAD + "".join(lines))

    monkeypatch.setattr(peer_owner, "TABLES", (tmp_path / "none", tmp_path / "tcp"))
    return write


@pytest.mark.parametrize(
    ("peer", "own"),
    [
        (("127.0.0.1", 50000), ("127.0.0.1", 11437)),
        (("::1", 50000, 0, 0), ("::1", 11437, 0, 0)),
        (("::ffff:127.0.0.1", 50000, 0, 0), ("::ffff:127.0.0.1", 11437, 0, 0)),
    ],
)
def test_both_ends_tell_whose_it_is(tables, peer, own):
    a, b = (end[0].removeprefix("::ffff:") for end in (peer, own))
    other = "127.0.0.2" if "." in a else "::2"
    tables(
        (b, 11437, a, 50000, 7), (other, 50000, b, 11437, 1001), (a, 50000, b, 443, 1002), (a, 50000, b, 11437, 1000)
    )
    assert owner_of(peer, own) == 1000


def test_what_is_not_in_the_table_is_not_known(tables):
    tables(("127.0.0.1", 50001, "127.0.0.1", 11437, 1001))
    assert owner_of(("127.0.0.1", 50000), ("127.0.0.1", 11437)) is None
    assert owner_of("", "/run/p.sock") is None
    assert owner_of(None, None) is None


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has the table")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_of_this_process_is_of_its_user(family):
    try:
        server = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
    except OSError:
        pytest.skip("no such addresses here")
    with server, socket.create_connection(server.getsockname()[:2]):
        connection, peer = server.accept()
        with connection:
            assert owner_of(peer, connection.getsockname()) == os.getuid()
