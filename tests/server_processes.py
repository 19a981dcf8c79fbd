"""Servers as processes: our runner and a stock llama-server, with the launch flags Ollama uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from pilotfish.daemon.processes.ports import free_port
from tests.waiting import wait_until

RUNNER = (sys.executable, "-m", "pilotfish.daemon.runner.main")
SHIMMED_RUNNER = (sys.executable, "-m", "pilotfish.ollama_overlay.start")  # as the shim starts it
OLLAMA_FLAGS = (
    "--host", "127.0.0.1", "--no-webui", "--offline", "-np", "1",
    "--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps",
)  # fmt: skip
STOCK = Path(__file__).resolve().parents[1] / ".cache" / "stock"  # where `make stock` puts it
LOAD_SECONDS = 120  # generous: a first load checks its lane with real forwards


class ServerProcess:
    """A llama-server, ours or stock, that has loaded its model. `http` is a client of it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def wait_until_ready(self) -> None:
        wait_until(lambda: answers(self.process, self.http, "/health", self.log), "not ready", LOAD_SECONDS)


def answers(process: subprocess.Popen[bytes], http: httpx.Client, path: str, log: Path | None = None) -> bool:
    """Whether a server that was started answers `path` with 200 by now. Fails if it ended."""
    assert process.poll() is None, f"it ended: {log.read_text()[-2000:] if log else process.args}"
    try:
        return http.get(path).status_code == 200
    except httpx.TransportError:
        return False


def stock_server() -> tuple[str]:
    """The command of a stock llama-server; skips the test where there is none."""
    named = os.environ.get("PILOTFISH_TEST_LLAMA_SERVER")
    binary = Path(named) if named else next((path for path in STOCK.rglob("llama-server") if path.is_file()), None)
    if binary is None:
        # It takes minutes to build and is no dependency of ours; where it is set up, nothing is skipped.
        pytest.skip(f"no stock llama-server under {STOCK}: run `make stock`, or set PILOTFISH_TEST_LLAMA_SERVER")
    return (str(binary),)


def spawn(
    command: Sequence[str], model: Path, log: Path, *flags: str, env: Mapping[str, str] | None = None
) -> ServerProcess:
    """Start it without waiting."""
    port = free_port()
    words = [*command, "--model", str(model), "--port", str(port), *OLLAMA_FLAGS, *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
    return ServerProcess(process, port, log)


@contextmanager
def running(
    command: Sequence[str], model: Path, log: Path, *flags: str, env: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A loaded server, ended afterwards."""
    server = spawn(command, model, log, *flags, env=env)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.http.close()
        server.process.terminate()
        try:
            server.process.wait(10)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
