"""Where a draft host listens, who may connect, and how it comes up and goes down."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.control.address import claimed
from pilotfish.daemon.drafthost.draft_server import IDLE, DraftServer
from pilotfish.daemon.http.connection import Limits
from pilotfish.daemon.http.gate import is_loopback
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.processes.parent_death import end_at_once_when_let_go, when_let_go
from pilotfish.hooks.errors import ConfigError

PORT = 11436
TOKEN_VARIABLE = "PILOTFISH_DRAFT_TOKEN"
_SHORTEST_TOKEN = 16  # characters
_SHUTDOWN = 2.0  # seconds that an answer under way may take
LIMITS = Limits(keep_alive=IDLE)  # a session ends with its connection


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and what protects it. Without `socket` it is TCP. Port 0 lets the system choose one."""

    host: str = "127.0.0.1"
    port: int = PORT
    socket: Path | None = None
    token: str = ""
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """What clients write as `drafters.remote.url`."""
        if self.socket:
            return f"unix:{self.socket.absolute()}"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{name}:{self.port}"


def parse_endpoint(
    host: str = "",
    socket: Path | None = None,
    token_file: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> Endpoint:
    """An endpoint that is safe to listen on. Raises ConfigError, naming the option."""
    token = read_token(token_file)
    if socket is not None:
        if host or cert or key:
            raise ConfigError("--socket: goes without --host, --cert and --key")
        return Endpoint(socket=socket, token=token)
    name, port = _parse_host(host)
    if not token and not is_loopback(name):
        raise ConfigError(
            f"--host: {name} can be reached from elsewhere, so a shared secret is needed; write one into a file "
            f"(openssl rand -hex 32) and name it with --token-file, or set {TOKEN_VARIABLE}"
        )
    return Endpoint(name, port, None, token, _tls(cert, key))


def read_token(token_file: Path | None) -> str:
    """The shared secret: the file's content, else `$PILOTFISH_DRAFT_TOKEN`, else empty. Raises ConfigError."""
    where, token = f"${TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE, "").strip()
    if token_file is not None:
        where = f"--token-file: {token_file}"
        try:
            token = token_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where} cannot be read: {error}") from error
    if (token or token_file) and (len(token) < _SHORTEST_TOKEN or not re.fullmatch(r"[!-~]+", token)):
        raise ConfigError(
            f"{where}: needs one word of at least {_SHORTEST_TOKEN} characters; try: openssl rand -hex 32"
        )
    return token


@contextlib.asynccontextmanager
async def listening(server: DraftServer, endpoint: Endpoint, limits: Limits = LIMITS) -> AsyncIterator[Endpoint]:
    """The server, listening; yields the endpoint with the port it got. Raises ConfigError when it cannot be had.

    On leaving, sessions are closed and the drafter is unloaded.
    """
    with contextlib.ExitStack() as stack:  # a path is let go of after the server is
        sockets = [_claim(endpoint.socket, stack)] if endpoint.socket else await _bind(endpoint)
        bound = endpoint if endpoint.socket else replace(endpoint, port=sockets[0].getsockname()[1])
        # A handler that ended with its connection would leave the drafter's thread at work on a session nobody closes.
        served = serving(
            server.app(bound.host if bound.socket is None else ""),
            sockets,
            limits,
            tls=endpoint.tls,
            handler_cancellation=False,
            shutdown_timeout=_SHUTDOWN,
        )
        async with served:
            yield bound


@contextlib.asynccontextmanager
async def until_told() -> AsyncIterator[asyncio.Event]:
    """An event that is set by SIGINT, by SIGTERM, and when the parent of a tied process is gone."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    end_at_once_when_let_go()
    when_let_go(stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _bind(endpoint: Endpoint) -> list[socket.socket]:
    try:
        return await listeners(endpoint.host, endpoint.port)
    except OSError as error:
        where = f"{endpoint.host}:{endpoint.port}"
        raise ConfigError(f"--host: cannot listen on {where}: {error.strerror}; choose another address") from error


def _claim(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    try:
        listener = stack.enter_context(claimed(path))
    except ConfigError as error:
        what, _, _ = str(error).partition("; name another one")  # which would be about the control socket
        raise ConfigError(f"--socket: {what}; name another path with --socket") from error
    if listener is None:
        raise ConfigError(f"--socket: another process listens on {path}; end it, or name another path")
    return listener


def _parse_host(text: str) -> tuple[str, int]:
    """`host:port`, `host` or `:port`; an IPv6 address with a port stands in brackets."""
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (name.count(":") and not name.startswith("[")):
        name, port = text, ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError(f"--host: {text!r} has no port from 0 to 65535; write HOST:PORT")
    return name.strip("[]") or "127.0.0.1", int(port) if port else PORT


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None:
        raise ConfigError("--key: needs --cert as well")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--cert: {cert} and its key cannot be used: {error}") from error
    return context
