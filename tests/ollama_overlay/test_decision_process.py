"""Runner or stock: the decision as the script runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.daemon.control import decision_log
from pilotfish.ollama_overlay.shim_script import DECIDED_STOCK, RUNNER, RUNNER_ON_OLLAMA
from tests.ollama_overlay.launches import launch


@pytest.fixture
def run(blob, state, tmp_path):
    def process(*more, config=""):
        path = tmp_path / "pilotfish.toml"
        path.write_text(config or "# nothing\n")
        env = {**os.environ, "PILOTFISH_STATE": str(state), "PILOTFISH_CONFIG": str(path)}
        command = [sys.executable, "-P", "-m", "pilotfish.ollama_overlay.shim", *launch(blob, *more)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

    return process


def test_the_exit_code_says_what_to_become(run):
    assert run().returncode == RUNNER
    assert run("--lora", "x").returncode == DECIDED_STOCK
    assert run(config='[engine]\nlibllama = "ollama"\n').returncode in (RUNNER, RUNNER_ON_OLLAMA)


def test_one_line_says_why_and_so_does_the_state_folder(run, state):
    done = run("--lora", "x")
    (entry,) = decision_log.read(state)

    assert len(done.stderr.splitlines()) == 1
    assert entry.reason in done.stderr
    assert (entry.model, entry.decision) == ("tiny:1b", "stock")


def test_a_state_folder_that_cannot_be_written_costs_nothing(run, state):
    state.write_text("a file")
    assert run().returncode in (RUNNER, DECIDED_STOCK)


def test_a_user_without_a_home_folder_has_stock_and_a_reason(blob, tmp_path):
    patched = "import os; os.path.expanduser = lambda path: path\n"
    code = patched + "import sys; from pilotfish.ollama_overlay import shim; sys.exit(shim.main(sys.argv[1:]))"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PILOTFISH", "XDG", "HOME"))}
    command = [sys.executable, "-P", "-c", code, *launch(blob)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == DECIDED_STOCK
    assert "no home folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stderr_that_is_gone_costs_nothing(blob, state, unbuffered):
    command = [sys.executable, "-P", "-m", "pilotfish.ollama_overlay.shim", *launch(blob, "--lora", "x")]
    env = {**os.environ, "PILOTFISH_STATE": str(state), "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as nowhere:
        assert subprocess.run(command, env=env, stderr=nowhere, check=False).returncode == DECIDED_STOCK


def test_nothing_slow_is_imported(blob, state):
    text = "import sys; from pilotfish.ollama_overlay import shim; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "pilotfish" in loaded
    assert not loaded & {"numpy", "gguf", "aiohttp", "llama_cpp", "rich", "jinja2", "watchdog", "asyncio"}
