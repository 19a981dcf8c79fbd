"""The real runner under a real daemon: toggled in mid-answer, and its daemon killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.control.governed import status_once as status_at
from tests.daemon.runner.settings import SETTINGS
from tests.server_processes import RUNNER, ServerProcess, running

pytestmark = pytest.mark.model

DAEMON = (sys.executable, "-c", "from pilotfish.daemon.cli import main; main(['daemon'])")
LINES = "<|im_start|>user\nWrite ten lines, each starting with Alpha.<|im_end|>\n<|im_start|>assistant\n"
BODY = {"prompt": LINES, "temperature": 0, "return_tokens": True}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, state: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of daemon, runner and command line: one config, one socket."""
    home = tmp_path_factory.mktemp("governed")
    (home / "plugins").mkdir(mode=0o700)
    (home / "p.toml").write_text('[drafters]\norder = ["mine", "suffix"]\n[plugins]\nfolders = ["plugins"]\n')
    with tempfile.TemporaryDirectory(prefix="pf-") as short:  # the path of a socket must be
        yield {
            "PILOTFISH_STATE": state["PILOTFISH_STATE"],
            "PILOTFISH_CONFIG": str(home / "p.toml"),
            "PILOTFISH_SOCKET": f"{short}/p.sock",
            "OLLAMA_MODELS": str(home / "models"),
        }


@contextmanager
def daemon(home: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(DAEMON, env={**os.environ, **home}, stderr=subprocess.DEVNULL) as process:
        try:
            status_once(home, lambda found: found["daemon"]["pid"] == process.pid)
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def governed(
    smollm2_path: Path, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with running(RUNNER, smollm2_path, tmp_path_factory.mktemp("log") / "log", *SETTINGS, env=home) as server:
        yield server


def status_once(home: dict[str, str], true: Callable[[dict], object]) -> dict:
    """The daemon's status, once `true` of it."""
    return asyncio.run(status_at(Path(home["PILOTFISH_SOCKET"]), true))


def toggle(home: dict[str, str], word: str) -> None:
    command = (sys.executable, "-c", f"from pilotfish.daemon.cli import main; main([{word!r}])")
    subprocess.run(command, env={**os.environ, **home}, check=True, capture_output=True)


def in_state(state: str) -> Callable[[dict], bool]:
    return lambda found: [runner["state"] for runner in found["runners"]] == [state]


def test_switched_off_in_mid_answer(governed, home):
    whole = governed.post("/completion", **BODY, n_predict=64).json()
    assert whole["pilotfish"]["drafters"] == ["suffix"]
    with daemon(home):
        status_once(home, lambda found: found["runners"] and found["runners"][0]["totals"]["requests"])
        with governed.http.stream("POST", "/completion", json={**BODY, "n_predict": 64, "stream": True}) as response:
            lines = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
            events = [next(lines)]
            toggle(home, "off")
            status_once(home, in_state("off"))
            events += lines
        assert [token for event in events for token in event["tokens"]] == whole["tokens"]
        assert events[-1]["pilotfish"]["drafters"] == ["suffix"]

        plain = governed.post("/completion", **BODY, n_predict=64).json()
        assert plain["pilotfish"]["drafters"] == []
        assert not plain["pilotfish"]["speculated"]
        assert plain["tokens"] == whole["tokens"]

        toggle(home, "on")
        status_once(home, lambda found: not in_state("off")(found))
        again = governed.post("/completion", **BODY, n_predict=64).json()
        assert again["pilotfish"]["drafters"] == ["suffix"]
        assert again["tokens"] == whole["tokens"]


def test_the_daemon_killed_in_mid_answer(governed, home):
    whole = governed.post("/completion", **BODY, n_predict=64).json()
    with daemon(home) as first:
        status_once(home, lambda found: found["runners"])
        with governed.http.stream("POST", "/completion", json={**BODY, "n_predict": 64, "stream": True}) as response:
            lines = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
            events = [next(lines)]
            first.send_signal(signal.SIGKILL)
            first.wait()
            events += lines
    assert [token for event in events for token in event["tokens"]] == whole["tokens"]
    assert governed.post("/completion", **BODY, n_predict=64).json()["tokens"] == whole["tokens"]
    with daemon(home):
        found = status_once(home, lambda found: found["runners"] and found["runners"][0]["totals"]["requests"])
        assert found["runners"][0]["pid"] == governed.process.pid


def test_a_drafter_dropped_in(governed, home):
    plugin = Path(home["PILOTFISH_CONFIG"]).parent / "plugins" / "mine.py"
    with daemon(home):
        status_once(home, lambda found: found["runners"] and found["runners"][0]["drafters"] == ["suffix"])
        plugin.write_text(
            "from pilotfish.hooks import HistoryDrafter, hookimpl\n"
            "class Mine(HistoryDrafter):\n"
            "    name = 'mine'\n"
            "    def suggest(self, tokens, k):\n"
            "        return tokens[-k:]\n"
            "@hookimpl\n"
            "def pilotfish_register_drafters(register):\n"
            "    register('mine', Mine)\n"
        )
        plugin.chmod(0o600)
        status_once(home, lambda found: found["runners"][0]["drafters"] == ["mine", "suffix"])
        assert governed.post("/completion", **BODY, n_predict=32).status_code == 200
        plugin.write_text("raise RuntimeError('broken')")
        found = status_once(home, lambda found: found["runners"][0]["drafters"] == ["suffix"])
        assert any("broken" in problem for problem in found["runners"][0]["problems"])
        assert governed.post("/completion", **BODY, n_predict=32).status_code == 200
