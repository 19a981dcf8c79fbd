"""Where a far end listens, who may reach it, and what it says of itself at `/health`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aiohttp import web

from pilotfish import __version__
from pilotfish.daemon.http.connection import MakeHTTP
from pilotfish.daemon.http.gate import gate, is_loopback
from pilotfish.daemon.http.listeners import at_once
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.rpchost.doorway import Doorway
from pilotfish.daemon.rpchost.far_host import FarHost
from pilotfish.hooks.errors import ConfigError

PORT = 50052  # llama.cpp's own rpc-server has it, too


@dataclass(frozen=True, slots=True)
class FarAddress:
    """Where a far end listens. Port 0 lets the system choose one."""

    host: str = "127.0.0.1"
    port: int = PORT

    @property
    def endpoint(self) -> str:
        """As near ends write it."""
        return f"{self.host}:{self.port}"

    @property
    def tunnel(self) -> str:
        """The command that brings it to a near end's own machine, encrypted and for that user alone."""
        return f"ssh -N -L {self.port or PORT}:127.0.0.1:{self.port or PORT} user@{socket.gethostname()}"


def parse_address(text: str, knows: bool) -> FarAddress:
    """`host:port`, `host` or `:port`. Raises ConfigError, naming the option; `knows` allows others than loopback."""
    name, colon, port = text.rpartition(":")
    if ":" in name or text.startswith("["):
        raise ConfigError(f"--host: {text!r} is no HOST:PORT; llama.cpp's near ends know no IPv6 addresses")
    if not colon:
        name, port = text, ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError(f"--host: {text!r} has no port from 0 to 65535; write HOST:PORT")
    address = FarAddress(name or "127.0.0.1", int(port) if port else PORT)
    if not knows and not is_loopback(address.host):
        raise ConfigError(
            f"--host: {address.host} can be reached from elsewhere, and this protocol has neither password nor "
            "encryption: whoever connects may compute here and read what others do. Stay with 127.0.0.1 and run this "
            f"on the near end's machine: {replace(address, host='127.0.0.1').tunnel} . In a network where nobody else "
            "is, add --i-know"
        )
    return address


@dataclass(frozen=True, slots=True)
class Promised:
    """What does not change while a far end runs."""

    processor: str
    memory: int | None  # bytes that models may take on each device
    cache: bool  # whether weights are kept


@contextlib.asynccontextmanager
async def far_listening(host: FarHost, address: FarAddress, promised: Promised) -> AsyncIterator[FarAddress]:
    """The host, listening; yields the address with the port it got. Raises ConfigError when it cannot be had, and
    EngineError when nothing can compute."""
    with contextlib.closing(await _bound(address)) as listener:

        def doorway(make_http: MakeHTTP) -> MakeHTTP:
            return partial(Doorway, make_http, host)

        async with host.running(), serving(_health_app(host, address.host, promised), [listener], doorway=doorway):
            yield replace(address, port=listener.getsockname()[1])


async def _bound(address: FarAddress) -> socket.socket:
    """A listening socket whose connections have the system's buffers, unlike `http.listeners`': logits are large."""
    try:
        listener = await asyncio.to_thread(socket.create_server, (address.host, address.port))
    except OSError as error:
        raise ConfigError(
            f"--host: cannot listen on {address.endpoint}: {error.strerror}; choose another address"
        ) from error
    listener.setblocking(False)
    at_once(listener)
    return listener


def _health_app(host: FarHost, bound_host: str, promised: Promised) -> web.Application:
    async def health(request: web.Request) -> web.Response:
        return web.json_response(await _health(host, promised), status=200 if host.ready else 503)

    app = web.Application(middlewares=[gate(bound_host)])
    app.router.add_get("/health", health)
    return app


async def _health(host: FarHost, promised: Promised) -> dict[str, Any]:
    served = host.served
    return {
        "pilotfish": __version__,
        "instance": host.instance,
        "protocol": host.protocol,
        "fingerprint": host.about["fingerprint"],
        "engine": host.about["engine"],
        "processor": promised.processor,
        "devices": list(await host.devices()),
        "threads": host.about["threads"],
        "memory": promised.memory,
        "cache": promised.cache,
        "busy": served.peer if served else "",
        "busy_s": round(time.monotonic() - served.since, 3) if served else 0.0,
        "silent_s": round(host.silent_s, 3),
        "sessions": host.sessions,
        "restarts": host.restarts,
    }
