"""What the shim started becomes the stock server, on the same port, when its model cannot be loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pilotfish.daemon.processes.ports import free_port
from pilotfish.ollama_overlay import start
from pilotfish.ollama_overlay.decision import decide
from pilotfish.ollama_overlay.stock import become_stock, stock_environment
from tests.manifests.builders import tiny_gguf

# A stock server that reports what it is given, takes its port and ends.
STOCK = f"""#!{sys.executable}
import json, os, socket, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
listener = socket.create_server(("127.0.0.1", port))
print(json.dumps([os.getpid(), sys.argv[1:], dict(os.environ)]))
"""


@pytest.fixture
def stock(tmp_path):
    path = tmp_path / "lib" / "llama-server"
    path.parent.mkdir()
    path.write_text(STOCK)
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(stock, tmp_path):
    """As the shim leaves it."""
    ours = {
        "PILOTFISH_STATE": str(tmp_path / "state"),
        "PILOTFISH_CONFIG": "",
        "PILOTFISH_STOCK": str(stock),
        "PILOTFISH_STOCK_LD_LIBRARY_PATH": f"{stock.parent}:/opt/lib",
        "LD_LIBRARY_PATH": "/opt/lib",
    }
    return {**os.environ, **ours}


def run(environment, *words, module="pilotfish.ollama_overlay.start"):
    command = [sys.executable, "-P", "-m", module, *words]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, said = process.communicate(timeout=120)
    return process, out, said


def launch(model, *more):
    return ["--model", str(model), "--port", str(free_port()), "--host", "127.0.0.1", "-c", "512", *more]


# What goes wrong before the model is ready, by the line of Python that brings it about.
FAULTS = {
    "the config cannot be looked at": "main.files.load_or_last_good = raising(PermissionError(13, 'denied'))",
    "a plugin folder cannot be looked at": "lifetime.plugin_fingerprint = raising(PermissionError(13, 'denied'))",
    "something leaves": "main.in_force = raising(SystemExit(0))",
    "something is cancelled": "lifetime.Server = raising(asyncio.CancelledError())",
    "something panics": "lifetime.Server = raising(BaseException('panic'))",
    "the load leaves": "loading.load = raising(SystemExit(0))",
    "the load stops iterating": "loading.load = raising(StopIteration())",
    "the load panics": "loading.load = raising(BaseException('panic'))",
    "the state folder is nowhere": "main.paths.state_dir = raising(ConfigError('no home folder'))",
}
FAULTY = """
import asyncio, sys
from pilotfish.daemon.runner import lifetime, loading, main
from pilotfish.hooks.errors import ConfigError
from pilotfish.ollama_overlay import start

def raising(error):
    def fail(*given, **named):
        raise error
    return fail

{fault}
sys.exit(start.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_whatever_is_raised_before_the_model_is_ready_ends_at_stock(environment, tmp_path, fault):
    words = launch(tmp_path / "model.gguf")
    command = [sys.executable, "-P", "-c", FAULTY.format(fault=fault), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1] == words
    assert "pilotfish: stock llama-server: " in done.stderr


NAMED = """
import sys
from pilotfish.ollama_overlay import start
start._runner = lambda: lambda arguments: print(open("/proc/self/comm").read())
start.main(["--model", "/m"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there a process may name itself so")
def test_a_list_of_processes_names_the_runner_and_not_python(environment):
    command = [sys.executable, "-P", "-c", NAMED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "pilotfish"


@pytest.mark.parametrize("case", ["a broken file", "a missing file", "a flag for stock"])
def test_a_launch_that_fails_before_the_model_is_ready_goes_on_as_stock(environment, stock, tmp_path, case):
    model = tmp_path / "model.gguf"
    if case == "a broken file":
        model.write_bytes(b"GGUF" + bytes(1000))
    words = launch(model, *(("--lora", "x y") if case == "a flag for stock" else ()))
    process, out, said = run(environment, *words)
    pid, given, env = json.loads(out)

    assert process.returncode == 0, said
    assert pid == process.pid, "Ollama watches and kills the process it started"
    assert given == words
    assert env["LD_LIBRARY_PATH"] == environment["PILOTFISH_STOCK_LD_LIBRARY_PATH"]
    assert not [name for name in env if name.startswith("PILOTFISH_STOCK")]
    assert "pilotfish: stock llama-server: " in said


@pytest.mark.model
def test_an_architecture_that_the_engine_does_not_know_is_stocks_from_the_next_launch_on(
    environment, tmp_path, monkeypatch
):
    model = tiny_gguf(tmp_path / "model.gguf", architecture="brand-new")
    os.utime(model, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered
    words = launch(model)
    process, out, said = run(environment, *words)
    assert process.returncode == 0, said
    assert json.loads(out)[1] == words

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    decision = decide(words, tmp_path / "state")
    assert not decision.runner
    assert "brand-new" in decision.reason


def test_the_runners_old_name_starts_what_the_new_one_does(environment, tmp_path):
    words = launch(tmp_path / "nothing.gguf")
    process, out, said = run(environment, *words, module="pilotfish.ollama_overlay.runner")
    assert process.returncode == 0, said
    assert json.loads(out)[1] == words


def test_without_a_stock_server_a_failure_is_an_exit_code(environment, tmp_path):
    del environment["PILOTFISH_STOCK"]
    process, out, said = run(environment, *launch(tmp_path / "nothing.gguf"))

    assert (process.returncode, out) == (1, "")
    assert "nothing.gguf" in said


def test_a_runner_that_cannot_be_imported_becomes_stock(monkeypatch):
    became = []
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.setattr(start, "become_stock", lambda reason, words: became.append((reason, list(words))) or sys.exit())
    monkeypatch.setitem(sys.modules, "pilotfish.daemon.runner.main", None)
    with pytest.raises(SystemExit):
        start.main(["--model", "m"])

    ((reason, words),) = became
    assert words == ["--model", "m"]
    assert "cannot be started" in reason


@pytest.mark.parametrize("raised", ["raise SystemExit(0)", "raise BaseException('panic')", "raise ValueError"])
def test_nor_does_one_whose_import_does_something_else(monkeypatch, tmp_path, raised):
    became = []
    (tmp_path / "odd_runner.py").write_text(raised)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.setattr(start, "become_stock", lambda reason, words: became.append(reason) or sys.exit("stock"))
    monkeypatch.setattr(start, "_runner", lambda: __import__("odd_runner"))
    with pytest.raises(SystemExit, match="stock"):
        start.main(["--model", "m"])
    assert "cannot be started" in became[0]


def test_without_a_stock_server_a_failed_import_is_raised(monkeypatch):
    monkeypatch.delenv("PILOTFISH_STOCK", raising=False)
    monkeypatch.setitem(sys.modules, "pilotfish.daemon.runner.main", None)
    with pytest.raises(ImportError):
        start.main(["--model", "m"])


def test_what_python_ignores_the_stock_server_does_not(monkeypatch):
    became = []
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.setattr(os, "execve", lambda *words: became.append(signal.getsignal(signal.SIGPIPE)))
    become_stock("a test", [])
    assert became == [signal.SIG_DFL]


def test_where_it_cannot_be_started_this_process_ignores_it_as_before(monkeypatch):
    monkeypatch.setenv("PILOTFISH_STOCK", "/nowhere/llama-server")
    with pytest.raises(OSError, match="llama-server"):
        become_stock("a test", [])
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


def test_variables_come_back_as_they_were():
    changed = {"A": "1", "PILOTFISH_STOCK": "/s", "PILOTFISH_STOCK_B": "old", "B": "new", "PILOTFISH_STOCK_C": ""}
    assert stock_environment(changed) == {"A": "1", "B": "old", "C": ""}

    on_ollamas = {"PILOTFISH_STOCK": "/lib/llama-server", "LLAMA_CPP_LIB_PATH": "/lib"}
    assert stock_environment(on_ollamas) == {}
    assert stock_environment({**on_ollamas, "LLAMA_CPP_LIB_PATH": "/mine"}) == {"LLAMA_CPP_LIB_PATH": "/mine"}
