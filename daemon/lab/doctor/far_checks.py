"""Machines that compute layers for this one: what is in their way, what they have, who else reaches them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from rich import filesize

from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.daemon.farends.looking import FarEndSeen
from pilotfish.daemon.farends.rpc_endpoint import RpcEndpoint
from pilotfish.daemon.lab.doctor.finding import Finding, Level
from pilotfish.daemon.lab.doctor.surroundings import Surroundings

_ABOUT = "far ends"
_SHOWN = 12  # hex digits of a fingerprint
_HOST = "pilotfish rpc-host"


def far_findings(around: Surroundings) -> Iterator[Finding]:
    """Everything about the configured far ends."""
    for seen in around.far_ends:
        if seen.trouble:
            yield _trouble(seen, held=seen.address in around.far_held)
        yield from _libraries(seen, around.engines.get(STOCK_ENGINE, ""))
        yield from _network(seen)
    yield from _memory(around)


def _trouble(seen: FarEndSeen, *, held: bool) -> Finding:
    """One that serves somebody is as it should be where that is a runner of this machine."""
    if held:
        what = f"{seen.endpoint} computes for a process of this machine now"
        return Finding(
            Level.NOTE, _ABOUT, what, "it serves one near end at a time, so nothing else can be loaded there"
        )
    why = "a model that is split over it cannot be loaded now"
    return Finding(Level.WARNING if seen.busy else Level.PROBLEM, _ABOUT, seen.trouble, why)


def _libraries(seen: FarEndSeen, here: str) -> Iterator[Finding]:
    if seen.fingerprint and here and seen.fingerprint != here:
        there, own = seen.fingerprint[:_SHOWN], here[:_SHOWN]
        what = f"{seen.endpoint} computes with other libraries ({there}) than this machine ({own})"
        why = "that is allowed; a lane that is certified with one of them does not hold with the other"
        yield Finding(Level.NOTE, _ABOUT, what, why)
    elif seen.protocol and not seen.fingerprint:
        what = f"{seen.endpoint} tells its protocol ({seen.protocol}) and not its libraries"
        why = "a certificate cannot notice that another build computes there"
        yield Finding(
            Level.WARNING, _ABOUT, what, why, f"use `{_HOST}` there, or certify again after each of its updates"
        )


def _network(seen: FarEndSeen) -> Iterator[Finding]:
    named = RpcEndpoint.parse(seen.endpoint)
    numeric = seen.address.partition(":")[0]
    if ipaddress.IPv4Address(numeric).is_loopback if numeric else named.is_loopback:
        return
    why = (
        "its protocol knows no password and no encryption: who reaches the port reads and writes that machine's memory"
    )
    tunnel = f"ssh -N -L {named.port}:127.0.0.1:{named.port} {named.host}"
    remedy = f'use a network that you trust, or "127.0.0.1:{named.port}" and a tunnel: {tunnel}'
    yield Finding(Level.WARNING, _ABOUT, f"{seen.endpoint} is reached over a network", why, remedy)


def _memory(around: Surroundings) -> Iterator[Finding]:
    having = [seen for seen in around.far_ends if seen.devices]
    if not having:
        return
    each = ", ".join(f"{seen.endpoint} {_free(seen)} of {_total(seen)}" for seen in having)
    what = f"free there: {each}"
    if len(having) > 1:
        what += f"; together {filesize.decimal(sum(seen.free for seen in having))}"
    yield Finding(Level.NOTE, _ABOUT, what, "libllama splits a model's layers by what is free")


def _free(seen: FarEndSeen) -> str:
    return filesize.decimal(seen.free)


def _total(seen: FarEndSeen) -> str:
    return filesize.decimal(sum(device.total for device in seen.devices))
