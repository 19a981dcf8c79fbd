"""One `pilotfish serve` with a real model for all, with a config and a state of its own, and one browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotfish.daemon.processes.ports import free_port
from pilotfish.manifests.store import Store
from tests.browser.chromium import Browser, chromium
from tests.daemon.front.tiny_models import write_gguf
from tests.manifests.builders import smollm2_path
from tests.waiting import wait_until

MODEL = "smollm2:135m"
COMMAND = (sys.executable, "-c", "from pilotfish.daemon.cli import main; main()")


class Served:
    """The server, which can be started and killed; and what a client asks of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.page = f"{self.url}/pilotfish/"
        self.config = home / "config" / "pilotfish" / "pilotfish.toml"
        self.socket = home / "p.sock"
        self.environment = {
            **os.environ,
            "PILOTFISH_HOST": f"127.0.0.1:{self.port}",
            "PILOTFISH_STATE": str(home / "state"),
            "PILOTFISH_SOCKET": str(self.socket),
            "XDG_CONFIG_HOME": str(home / "config"),
            "PILOTFISH_CHECK_SECONDS": "2",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*COMMAND, "serve", "--models", str(self.home / "models")]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        wait_until(lambda: self.socket.exists() and self.answers(), "the server did not start")

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/version").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(timeout=30)

    def way_in(self) -> str:
        """The address of `pilotfish open`."""
        done = subprocess.run([*COMMAND, "open", "--print"], env=self.environment, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.page}api/state").json()
        return found

    def ask(self, prompt: str, tokens: int) -> dict[str, Any]:
        """The last object of an answer."""
        body = {"model": MODEL, "prompt": prompt, "options": {"num_predict": tokens, "temperature": 0}}
        answer = httpx.post(f"{self.url}/api/generate", json={**body, "stream": False}, timeout=120)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def asking(self, prompt: str, tokens: int) -> threading.Thread:
        """The same beside the test; the answer is not looked at, it may be cut off."""

        def ask() -> None:
            body = {"model": MODEL, "prompt": prompt, "options": {"num_predict": tokens, "temperature": 0}}
            try:
                with httpx.stream("POST", f"{self.url}/api/generate", json=body, timeout=120) as answer:
                    for line in answer.iter_lines():
                        json.loads(line)
            except httpx.TransportError:
                pass

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    home = Path(tempfile.mkdtemp(prefix="pf-")).resolve()  # not pytest's own: the path of a socket must be short
    (home / "config" / "pilotfish").mkdir(parents=True)
    store = Store(home / "models")
    store.add_gguf(MODEL, smollm2_path())
    store.add_gguf("broken", write_gguf(home / "broken.gguf"))
    found = Served(home)
    found.config.write_text("# mine\n[speculation]\nenabled = true\n")
    found.start()
    yield found
    found.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, served: Served) -> Browser:
    """The page as `pilotfish open` opens it, with nothing on the console yet."""
    browser.look()
    browser.go(served.way_in())
    browser.until("#connection", "Live")
    browser.console()
    return browser
