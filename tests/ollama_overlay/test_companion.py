"""`overlay run` brings the daemon along, once, and takes it with it however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from pilotfish.daemon.control.control_client import ask_status
from tests.ollama_overlay import fake_ollama
from tests.waiting import is_gone, wait_until

PILOTFISH = (sys.executable, "-m", "pilotfish.daemon.cli")


@pytest.fixture
def environment(tmp_path: Path):
    with tempfile.TemporaryDirectory(prefix="pf-") as short:  # the path of a socket must be
        own = {
            "HOME": str(tmp_path),
            "OLLAMA_MODELS": str(tmp_path / "models"),
            "PILOTFISH_CONFIG": "",
            "PILOTFISH_DATA": str(tmp_path / "data"),
            "PILOTFISH_SOCKET": f"{short}/s",
            "PILOTFISH_STATE": str(tmp_path / "state"),
        }
        yield {**os.environ, **own}


@pytest.fixture
def overlaid(environment, tmp_path):
    """`overlaid()`: an overlay of an Ollama whose server does nothing, running."""
    original = fake_ollama.install(tmp_path / "usr")
    command = [*PILOTFISH, "overlay", "install", "--ollama", str(original)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    binary = tmp_path / "data" / "ollama" / "bin" / "ollama"
    binary.unlink()
    binary.write_text("#!/bin/sh\nexec sleep 600\n")
    binary.chmod(0o755)
    started = []

    def run() -> subprocess.Popen[bytes]:
        log = (tmp_path / "log").open("ab")
        with log:
            started.append(subprocess.Popen([*PILOTFISH, "overlay", "run"], env=environment, stdout=log, stderr=log))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def daemon(environment) -> int:
    """The id of the daemon that answers; 0 where none does."""
    found = asyncio.run(ask_status(Path(environment["PILOTFISH_SOCKET"])))
    return found["daemon"]["pid"] if found else 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_daemon_comes_and_goes_with_the_server(overlaid, environment, how):
    server = overlaid()
    process = psutil.Process(wait_until(lambda: daemon(environment), "no daemon came"))
    server.send_signal(how)
    server.wait()
    wait_until(lambda: not daemon(environment), "the daemon stayed")
    wait_until(lambda: is_gone(process), "its process stayed")


def test_one_that_answers_is_left_alone(overlaid, environment):
    with subprocess.Popen([*PILOTFISH, "daemon"], env=environment, stderr=subprocess.DEVNULL) as own:
        try:
            wait_until(lambda: daemon(environment) == own.pid, "it does not answer")
            server = overlaid()
            wait_until(lambda: psutil.Process(server.pid).name() == "sleep", "it never became Ollama")
            server.kill()
            server.wait()
            assert daemon(environment) == own.pid
        finally:
            own.terminate()
