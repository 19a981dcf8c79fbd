"""What the script becomes decides, and goes on as the runner or as the stock server, in the same process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotfish.daemon.control import decision_log
from pilotfish.ollama_overlay import begin
from pilotfish.ollama_overlay.decision import Decision
from pilotfish.ollama_overlay.shim_script import shim_script
from tests.ollama_overlay.launches import launch

# Reports who it is and what it was given.
STOCK = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([os.getpid(), sys.argv[1:], dict(os.environ)]))
"""


class Launched:
    """The script, over a stock server that reports; `run` gives what that said, and what stderr has."""

    def __init__(self, root: Path, state: Path) -> None:
        self.stock = root / "lib" / "llama-server"
        self.stock.parent.mkdir()
        self.stock.write_text(STOCK)
        self.stock.chmod(0o755)
        self._script = root / "shim"
        self._script.write_text(shim_script(self.stock, Path(sys.executable), "linux"))
        self._root, self._state = root, state

    def run(self, words: list[str], config: str = "", **more: str):
        path = self._root / "pilotfish.toml"
        path.write_text(config or "# nothing\n")
        ours = {"PILOTFISH_STATE": str(self._state), "PILOTFISH_CONFIG": str(path), "PILOTFISH_CERTIFY": "off"}
        command = ["/bin/sh", str(self._script), *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env={**os.environ, **ours, **more}, cwd=self._root, **pipes)
        out, self.said = process.communicate(timeout=120)
        if process.returncode == -signal.SIGINT:
            raise KeyboardInterrupt
        assert process.returncode == 0, self.said
        pid, given, environment = json.loads(out)
        assert pid == process.pid, "Ollama watches and kills the process it started"
        assert given == words
        return environment


@pytest.fixture
def launched(tmp_path, state) -> Launched:
    return Launched(tmp_path, state)


def test_what_is_stocks_becomes_it_with_one_line_and_the_environment_that_ollama_gave(launched, blob, state):
    words = launch(blob, "--lora", "x")
    environment = launched.run(words, LD_LIBRARY_PATH=f"{launched.stock.parent}:/opt/x")
    (entry,) = decision_log.read(state)

    assert environment["LD_LIBRARY_PATH"] == f"{launched.stock.parent}:/opt/x"
    assert not [name for name in environment if name.startswith("PILOTFISH_STOCK")]
    assert launched.said.splitlines() == [f"pilotfish: stock llama-server for tiny:1b: {entry.reason}"]


def test_a_package_that_cannot_be_imported_means_stock(launched, blob, tmp_path):
    (tmp_path / "broken" / "pilotfish").mkdir(parents=True)
    (tmp_path / "broken" / "pilotfish" / "__init__.py").write_text("raise SystemExit(3)")
    environment = launched.run(launch(blob), PYTHONPATH=str(tmp_path / "broken"), GGML_BACKEND_PATH="/a")
    assert environment["GGML_BACKEND_PATH"] == "/a"
    assert not [name for name in environment if name.startswith("PILOTFISH_STOCK")]
    assert "cannot be imported" in launched.said


def test_ctrl_c_while_it_is_imported_ends_the_process(launched, blob, tmp_path):
    (tmp_path / "slow" / "pilotfish").mkdir(parents=True)
    (tmp_path / "slow" / "pilotfish" / "__init__.py").write_text("import os; os.kill(os.getpid(), 2)")
    with pytest.raises(KeyboardInterrupt):
        launched.run(launch(blob), PYTHONPATH=str(tmp_path / "slow"))


def test_a_runner_begins_after_its_decision_and_lands_on_stock_when_it_cannot_load(launched, blob):
    launched.run(launch(blob))
    assert "pilotfish: runner for tiny:1b" in launched.said
    assert "pilotfish: stock llama-server: " in launched.said


class Became(Exception):
    """What was to become of this process."""


@pytest.fixture
def becomes(monkeypatch):
    def become(reason, arguments):
        raise Became(reason)

    monkeypatch.setattr(begin, "become_stock", become)
    monkeypatch.setattr(begin, "say", lambda decision: said.append(decision.reason))
    said: list[str] = []
    return said


@pytest.mark.parametrize("hangs", ["decision_for", "say"])
def test_a_decision_that_hangs_or_cannot_be_noted_means_stock(monkeypatch, becomes, hangs):
    monkeypatch.setattr(begin, "LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(begin, "decision_for", lambda arguments: Decision(True, "m", "on"))
    monkeypatch.setattr(begin, hangs, lambda given: time.sleep(10))
    with pytest.raises(Became, match="took more than"):
        begin.main(["--model", "/m"])


def test_nothing_is_noted_once_deciding_took_too_long(monkeypatch, becomes):
    """The state folder may be on the drive that does not answer."""
    monkeypatch.setattr(begin, "LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(begin, "decision_for", lambda arguments: time.sleep(10))
    with pytest.raises(Became):
        begin.main(["--model", "/m"])
    assert not becomes


def test_a_decision_that_cannot_be_told_means_stock(monkeypatch, becomes):
    def broken(decision):
        raise RuntimeError("no words")

    monkeypatch.setattr(begin, "decision_for", lambda arguments: Decision(True, "m", "on"))
    monkeypatch.setattr(begin, "say", broken)
    with pytest.raises(Became, match="no words"):
        begin.main(["--model", "/m"])


def test_on_ollamas_libraries_the_runner_begins_anew_where_it_finds_them(monkeypatch, becomes):
    def replaced(program, words, environment):
        raise Became(words[1:], environment)

    monkeypatch.setattr(begin, "decision_for", lambda arguments: Decision(True, "m", "on", ollama_libraries=True))
    monkeypatch.setattr(os, "execve", replaced)
    for name, value in {"": "/lib/llama-server", "_LD_LIBRARY_PATH": "/lib:/opt"}.items():
        monkeypatch.setenv(f"PILOTFISH_STOCK{name}", value)
    with pytest.raises(Became) as raised:
        begin.main(["--model", "/m"])
    words, environment = raised.value.args
    assert words == ["-P", "-m", begin.AFTER, "--model", "/m"]
    wanted = {"PILOTFISH_STOCK": "/lib/llama-server", "LLAMA_CPP_LIB_PATH": "/lib", "LD_LIBRARY_PATH": "/lib:/opt"}
    assert {name: environment.get(name) for name in wanted} == wanted


def test_a_runner_that_cannot_begin_anew_means_stock(monkeypatch, becomes):
    def refused(*words):
        raise OSError("no memory")

    monkeypatch.setattr(begin, "decision_for", lambda arguments: Decision(True, "m", "on", ollama_libraries=True))
    monkeypatch.setattr(os, "execve", refused)
    monkeypatch.setenv("PILOTFISH_STOCK", "/lib/llama-server")
    with pytest.raises(Became, match="no memory"):
        begin.main(["--model", "/m"])


def test_what_a_certification_is_told_is_whom_to_watch(monkeypatch, becomes):
    begun = []
    monkeypatch.setattr(
        begin, "decision_for", lambda arguments: Decision(False, "m", "left", certify=("/w", "u", "60"))
    )
    monkeypatch.setattr(begin, "certify_beside", lambda pid, words, **how: begun.append((pid, words)))
    with pytest.raises(Became):
        begin.main(["--model", "/m"])
    assert begun == [(os.getpid(), ("/w", "u", "60"))], "this process becomes the stock server"
