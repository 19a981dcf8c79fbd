"""Whose program opened a connection to a server of ours, where that is one of this machine and Linux says so."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _USER = 1, 2, 7  # columns

_End = tuple[object, int]  # an address and a port


def owner_of(peer: Any, own: Any) -> int | None:
    """The user id of who opened the connection from `peer` to `own`, as sockets name their ends; None: not known.

    Blocks for as long as it takes to read the system's table of connections.
    """
    try:
        wanted = (_end(peer[0], peer[1]), _end(own[0], own[1]))
    except (TypeError, ValueError, LookupError):  # no end of a TCP connection
        return None
    return next((user for user, *ends in _connections(wanted[0][1]) if tuple(ends) == wanted), None)


def _connections(port: int) -> Iterator[tuple[int, _End, _End]]:
    """User and both ends of those from a port of this machine."""
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        rows = (line.split() for line in lines)
        for row in _from_port(rows, f":{port:04X}"):
            yield int(row[_USER]), _written(row[_LOCAL]), _written(row[_REMOTE])


def _from_port(rows: Iterable[list[str]], port: str) -> Iterator[list[str]]:
    return (row for row in rows if len(row) > _USER and row[_LOCAL].endswith(port))


def _written(end: str) -> _End:
    """An end as the table has it: the address in words of this machine's byte order."""
    address, _, port = end.partition(":")
    words = (int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    return _end(b"".join(words), int(port, 16))


def _end(address: str | bytes, port: int) -> _End:
    """One address has one form here, also where IPv6 carries IPv4."""
    found = ipaddress.ip_address(address)
    return getattr(found, "ipv4_mapped", None) or found, port
