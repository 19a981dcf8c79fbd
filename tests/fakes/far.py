"""The far side of remote drafters: draft hosts in a thread or a process, servers that misbehave, slow networks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.local_host import LocalHost
from pilotfish.daemon.drafthost.draft_server import DraftServer
from pilotfish.daemon.drafthost.listening import LIMITS as DRAFT_LIMITS
from pilotfish.daemon.drafthost.listening import Endpoint, listening
from pilotfish.daemon.drafthost.served import Served
from pilotfish.daemon.http.connection import Limits
from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import Drafter
from pilotfish.manifests.store import Store
from tests.fakes.plugin_files import write

# Proposes what follows from the last id alone, so that the same history always gives the same proposal.
COUNTING = """
    from pilotfish.hooks import HistoryDrafter, hookimpl

    class Counting(HistoryDrafter):
        name = "counting"

        def suggest(self, tokens, k):
            return [(tokens[-1] + 1 + i) % 32 for i in range(k)]

    @hookimpl
    def pilotfish_register_drafters(register):
        register("counting", Counting)
"""


def local_host(folder: Path) -> LocalHost:
    """A host with an empty store."""
    return LocalHost(Store(folder / "models"), folder / "state")


@contextlib.contextmanager
def serving(
    drafter: Drafter,
    endpoint: Endpoint,
    *,
    registry: Registry | None = None,
    host: LocalHost | None = None,
    limits: Limits = DRAFT_LIMITS,
    **timing: float,
) -> Iterator[tuple[str, Served]]:
    """`drafter` served by a thread of this process; yields the url and what is served."""
    served = Served(drafter, registry or Registry(Config()), host or local_host(Path("/nonexistent")))
    bound, stop = threading.Event(), asyncio.Event()
    urls: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with listening(DraftServer(served, endpoint.token, **timing), endpoint, limits) as at:
            urls.append(at.url)
            bound.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert bound.wait(60)
    try:
        yield urls[0], served
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
        assert not thread.is_alive()


class DraftHost:
    """`pilotfish draft-host` as a process."""

    def __init__(self, folder: Path, name: str, *arguments: str, plugin: str = COUNTING) -> None:
        plugins = folder / "plugins"
        plugins.mkdir(mode=0o700, exist_ok=True)
        write(plugins, "far.py", plugin)
        (folder / "far.toml").write_text('[plugins]\nfolders = ["plugins"]\n')
        self._words = [
            sys.executable, "-m", "pilotfish.daemon.cli", "draft-host", name, "--json",
            "--config", str(folder / "far.toml"), *arguments,
        ]  # fmt: skip
        self._log = folder / "far.log"
        self.said: dict[str, Any] = {}
        self.process = self.start()

    @property
    def url(self) -> str:
        return str(self.said["url"])

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and return when it listens."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._log.read_text()
        self.said = json.loads(line)
        return self.process

    def stop(self) -> int:
        """End it as a service manager would; its exit code."""
        self.process.terminate()
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def draft_host(folder: Path, name: str = "counting", *arguments: str, plugin: str = COUNTING) -> Iterator[DraftHost]:
    """A draft host in another process, on a free port unless the arguments say otherwise."""
    where = () if "--host" in arguments or "--socket" in arguments else ("--host", f"127.0.0.1:{free_port()}")
    host = DraftHost(folder, name, *where, *arguments, plugin=plugin)
    try:
        yield host
    finally:
        if host.process.poll() is None:
            host.stop()


Answer = Callable[[str, Mapping[str, Any]], Any]


@contextlib.contextmanager
def json_server(answer: Answer) -> Iterator[str]:
    """Answers every request with `answer(path, body)` as JSON; a tuple (status, value, headers) says more."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            value = answer(self.path, json.loads(body) if body else {})
            status, value, headers = value if isinstance(value, tuple) else (200, value, {})
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def raw_server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """Hands every connection, its first bytes read, to `speak`, and closes it when that returns."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if connection.recv(65536):
                speak(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@contextlib.contextmanager
def delayed(url: str, seconds: float) -> Iterator[str]:
    """The same server, every byte arriving `seconds` later, both ways."""
    host, port = url.removeprefix("http://").split(":")

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(seconds)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.create_connection((host, int(port)))
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def run_in_namespace(words: Sequence[str], delay_ms: int) -> subprocess.CompletedProcess[str]:
    """Run a program in a network namespace whose loopback is slow. The exit code is 77 where that cannot be had."""
    setup = f'ip link set lo up && tc qdisc add dev lo root netem delay {delay_ms}ms || exit 77; exec "$@"'
    try:
        return subprocess.run(
            ["unshare", "-n", "sh", "-c", setup, "sh", *words],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ},
        )  # fmt: skip
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(words, 77, "", str(error))
