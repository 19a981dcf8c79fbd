"""To which far ends there are connections, of this process or of this machine.

libllama ends the process at the next forward that needs a far end which is lost, so that has to be noticed before.
Addresses are "10.0.0.2:50052", IPv4 (`FarEndSeen.address`): a name may stand for another one by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psutil

_KIND = "tcp4"


def lost(addresses: Sequence[str]) -> tuple[str, ...]:
    """Those of them to which this process holds no established connection.

    A connection that the other side closed or reset is none. A machine that went silent, or a cable, is not noticed:
    such a connection stays established until the system gives it up. Where the system does not tell, none is lost.
    """
    if not addresses:
        return ()
    try:
        held = _established(psutil.Process().net_connections(_KIND))
    except (psutil.Error, OSError):
        return ()
    return tuple(address for address in addresses if address not in held)


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
