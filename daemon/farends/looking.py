"""Looking at far ends before libllama connects to them: who is there, with what, and what is in the way.

Each is first asked for its health. Pilotfish's own far end answers that even while it computes for somebody, and needs
no further question: an RPC connection would take the only seat it has. A stock rpc-server ends such a connection
without a word, or, while it serves somebody, takes nothing up; a free one is then asked in its own protocol.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from pilotfish.daemon.farends import rpc_protocol
from pilotfish.daemon.farends.far_line import FarLine
from pilotfish.daemon.farends.own_health import OwnHealth, ask_health
from pilotfish.daemon.farends.rpc_endpoint import RpcEndpoint, twice
from pilotfish.daemon.farends.rpc_protocol import DeviceSeen, NotSpoken

SECONDS = 3.0
_GRACE = 1.0  # seconds beyond; only a name server takes longer than it may


@dataclass(frozen=True, slots=True)
class FarEndSeen:
    """A far end as it was found.

    `pin` names in one line what computes there, `fingerprint` its libraries (empty where it does not tell), `address`
    is what the name stood for, "10.0.0.2:50052". `busy` is whom it serves; for `silent_s` seconds what computes there
    has not answered its own host (0: it does, or nobody tells). `trouble` is empty, or a sentence with what is in the
    way of loading a model there now and what to do about it; being busy is such a trouble. `same_as` is another name in
    the same list that stands for it, or a tunnel that leads there, which is one, too; `instance` tells hosts apart.
    """

    endpoint: str
    address: str = ""
    pin: str = ""
    fingerprint: str = ""
    devices: tuple[DeviceSeen, ...] = ()
    protocol: str = ""
    busy: str = ""
    silent_s: float = 0.0
    same_as: str = ""
    instance: str = ""
    trouble: str = ""

    @property
    def free(self) -> int:
        """Bytes of memory that its devices have free."""
        return sum(device.free for device in self.devices)


def look(endpoints: Sequence[str], seconds: float = SECONDS, protocol: str | None = None) -> tuple[FarEndSeen, ...]:
    """Look at all of them at the same time; in their order. Blocks, for `seconds` and a little more at the most.

    `protocol` is the version that the near end's libllama speaks: by default that of llama-cpp-python here, and where
    it is empty, versions are not compared. Raises ValueError for what is no endpoint.
    """
    near = rpc_protocol.spoken_here() if protocol is None else protocol
    addresses = [RpcEndpoint.parse(endpoint) for endpoint in endpoints]
    deadline = time.monotonic() + seconds
    asked = [(one, _in_a_thread(partial(_look_at, one, near, deadline, seconds))) for one in addresses]
    found: list[FarEndSeen] = []
    for address, answer in asked:
        found.append(_told_apart(_awaited(address, answer, deadline, seconds), found))
    return tuple(found)


def _in_a_thread(what: Callable[[], FarEndSeen]) -> Future[FarEndSeen]:
    """A thread that nobody has to wait for: a name server that hangs must not keep a process from ending."""
    answer: Future[FarEndSeen] = Future()

    def run() -> None:
        try:
            answer.set_result(what())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="pilotfish-far-end", daemon=True).start()
    return answer


def _awaited(address: RpcEndpoint, answer: Future[FarEndSeen], deadline: float, seconds: float) -> FarEndSeen:
    try:
        return answer.result(max(deadline - time.monotonic(), 0) + _GRACE)
    except TimeoutError:
        return _unknown(address, f"no name server answers within {seconds:g} s")


def _told_apart(seen: FarEndSeen, before: Sequence[FarEndSeen]) -> FarEndSeen:
    """One that is reached under two names would be connected to twice, and serves once."""
    other = next((one for one in before if _is_the_same(seen, one)), None)
    if other is None:
        return seen
    return replace(seen, same_as=other.endpoint, trouble=twice(seen.endpoint, other.endpoint))


def _is_the_same(one: FarEndSeen, other: FarEndSeen) -> bool:
    same_address = one.address and one.address == other.address
    return bool(same_address or (one.instance and one.instance == other.instance))


def _look_at(address: RpcEndpoint, near: str, deadline: float, seconds: float) -> FarEndSeen:
    try:
        numeric = socket.getaddrinfo(address.host, address.port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except (OSError, UnicodeError) as error:
        return _unknown(address, str(getattr(error, "strerror", None) or error))
    where = (str(numeric[0]), address.port)
    seen = FarEndSeen(str(address), f"{where[0]}:{where[1]}")
    try:
        return _ask(seen, where, near, deadline)
    except TimeoutError:
        return replace(seen, trouble=_silent(seen, seconds))
    except NotSpoken as error:
        trouble = f"{seen.endpoint} is no far end: {error}; mend the port, or start `pilotfish rpc-host` there"
        return replace(seen, trouble=trouble)
    except OSError as error:
        return replace(seen, trouble=_out_of_reach(seen, error))


def _ask(seen: FarEndSeen, where: tuple[str, int], near: str, deadline: float) -> FarEndSeen:
    with FarLine(where, deadline) as line:
        health = ask_health(line)
    if health is not None:
        return _own(seen, health, near)
    return _greeted(seen, where, near, deadline)


def _own(seen: FarEndSeen, health: OwnHealth, near: str) -> FarEndSeen:
    seen = replace(
        seen,
        pin=health.pin,
        fingerprint=health.fingerprint,
        devices=health.devices,
        protocol=health.protocol,
        busy=health.busy,
        silent_s=health.silent_s,
        instance=health.instance,
    )
    trouble = (
        _unlike(seen, near) or _ended(seen, health) or _bare(seen) or _taken(seen, health.busy_s) or _hanging(seen)
    )
    return replace(seen, trouble=trouble)


def _greeted(seen: FarEndSeen, where: tuple[str, int], near: str, deadline: float) -> FarEndSeen:
    """One that answers nothing but RPC."""
    with FarLine(where, deadline, asks_rpc=True) as line:
        try:
            seen = _of_version(seen, rpc_protocol.greet(line))
        except ConnectionError:
            return _of_before(seen, where, near, deadline)
        if trouble := _unlike(seen, near):
            return replace(seen, trouble=trouble)
        seen = replace(seen, devices=rpc_protocol.ask_devices(line))
    return replace(seen, trouble=_bare(seen))


def _of_before(seen: FarEndSeen, where: tuple[str, int], near: str, deadline: float) -> FarEndSeen:
    """Whether one that does not take today's greeting takes that of old versions."""
    with FarLine(where, deadline, asks_rpc=True) as line:
        try:
            seen = _of_version(seen, rpc_protocol.greet_as_before(line))
        except ConnectionError:
            return replace(seen, trouble=_closing(seen))
    return replace(seen, trouble=_unlike(seen, near or rpc_protocol.GREETS_AS) or _closing(seen))


def _of_version(seen: FarEndSeen, version: str) -> FarEndSeen:
    return replace(seen, protocol=version, pin=f"RPC {version}")


def _unknown(address: RpcEndpoint, why: str) -> FarEndSeen:
    trouble = f"the name {address.host} is not known here: {why}; mend it, or write the far end's IPv4 address"
    return FarEndSeen(str(address), trouble=trouble)


def _silent(seen: FarEndSeen, seconds: float) -> str:
    return (
        f"{seen.endpoint} does not answer within {seconds:g} s: the machine is off or out of reach, the far end hangs, "
        "or it is a stock rpc-server, which serves one at a time and serves somebody else; look at it there, and end "
        "who holds it or start it again"
    )


def _out_of_reach(seen: FarEndSeen, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{seen.endpoint} refuses connections: nothing listens there; start `pilotfish rpc-host` or mend the port"
        )
    if isinstance(error, ConnectionError):
        return f"{seen.endpoint} ends the connection in the middle of an answer; start it again"
    why = error.strerror or str(error)
    return f"{seen.endpoint} cannot be reached: {why}; see that the machine is on and that its address is right"


def _closing(seen: FarEndSeen) -> str:
    return (
        f"{seen.endpoint} ends every connection without an answer: behind a tunnel nothing listens, or it is no far "
        "end, or one of an unknown version; start `pilotfish rpc-host` there, of this version"
    )


def _unlike(seen: FarEndSeen, near: str) -> str:
    """Why libllama would end the process at its greeting; empty where it does not, or where that is not known."""
    if not near or rpc_protocol.understands(near, seen.protocol):
        return ""
    age = "too old" if rpc_protocol.is_older(seen.protocol, near) else "too new"
    return (
        f"{seen.endpoint} is {age}: it speaks RPC {seen.protocol} of llama.cpp, this machine {near}; "
        "install the same version of pilotfish and of its llama.cpp at both ends"
    )


def _ended(seen: FarEndSeen, health: OwnHealth) -> str:
    if health.ready:
        return ""
    return f"{seen.endpoint} has no process that computes now; it is started again: try in a moment, or read its log"


def _hanging(seen: FarEndSeen) -> str:
    if not seen.silent_s:
        return ""
    return (
        f"{seen.endpoint} has a process that does not answer, since {seen.silent_s:.0f} s; one that stays so is "
        "started again: try in a moment, or read its log"
    )


def _bare(seen: FarEndSeen) -> str:
    return "" if seen.devices else f"{seen.endpoint} offers no device to compute on; start it again with one"


def _taken(seen: FarEndSeen, for_seconds: float) -> str:
    if not seen.busy:
        return ""
    return (
        f"{seen.endpoint} serves {seen.busy}, since {for_seconds:.0f} s, and serves one near end at a time; wait until "
        "that one unloads its model, or start another far end"
    )
