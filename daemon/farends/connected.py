"""To which far ends some process of this machine holds a connection.

Which ones a loaded model has lost, its engine tells (`hooks.protocols.SpansMachines`). Addresses are "10.0.0.2:50052",
IPv4 (`FarEndSeen.address`): a name may stand for another one by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psutil

_KIND = "tcp4"


def held_here(addresses: Sequence[str]) -> tuple[str, ...]:
    """Those of them to which some process of this machine holds a connection; none where the system does not tell."""
    if not addresses:
        return ()
    try:
        held = _established(psutil.net_connections(_KIND))
    except (psutil.Error, OSError):
        return ()
    return tuple(address for address in addresses if address in held)


def _established(connections: Iterable[Any]) -> set[str]:
    there = (one.raddr for one in connections if one.raddr and one.status == psutil.CONN_ESTABLISHED)
    return {f"{host}:{port}" for host, port in there}
