"""The script that Ollama launches as llama-server, run by real shells: what it becomes, and with what."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotfish.hooks.environment import OFF
from pilotfish.ollama_overlay.shim_script import shim_script
from pilotfish.ollama_overlay.stock import stock_environment

SHELLS = [name for name in ("dash", "bash", "busybox", "ksh", "zsh") if shutil.which(name)]
SPELLINGS = [spelling for word in OFF for spelling in dict.fromkeys((word, word.upper(), word.title()))]
LAUNCH = ["--model", "/m", "--port", "1"]
ODD = ["--model", '/a b/it\'s $HOME `x` "y" \\z', "", "*", "a\nb", "-n"]

# Writes down who it is, its words and its environment; the child that tries it ends with the code in a file.
PROGRAM = """\
#!{python}
import json, os, sys
with open({report!r}, "a") as file:
    json.dump([{name!r}, os.getpid(), sys.argv[1:], dict(os.environ)], file)
    file.write("\\n")
sys.exit(int(open({code!r}).read()) if sys.argv[1:] == ["-P", "-c", ""] else 0)
"""


class Installed:
    """A shim, a stock server and a Python that only report, in folders with awkward names."""

    def __init__(self, root: Path, shell: str) -> None:
        self.here = root / "it's an $overlay" / "lib" / "ollama"
        self.library = root / "us'r lib"
        self.python = root / "env" / "py thon"
        self.stock = self.library / "llama-server"
        self.shim = self.here / "llama-server"
        self.shell = [shell, "sh"] if shell == "busybox" else [shell]
        self._code, self._report = root / "code", root / "report"
        for path in (self.here, self.library, self.python.parent):
            path.mkdir(parents=True)
        self.shim.write_text(shim_script(self.stock, self.python, "linux"))
        for path in (self.stock, self.python):
            text = PROGRAM.format(python=sys.executable, name=path.name, code=str(self._code), report=str(self._report))
            path.write_text(text)
            path.chmod(0o755)
        self.starts(0)

    def starts(self, code: int) -> None:
        """What the interpreter ends with that is only tried."""
        self._code.write_text(str(code))

    def run(self, *words: str, **env: str):
        """(name, words, environment) of every program that ran; the last one is what the shim became."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PILOTFISH", "LD_"))}
        command = [*self.shell, str(self.shim), *words]
        process = subprocess.Popen(command, env={**clean, **env}, stderr=subprocess.PIPE, text=True)
        _, self.said = process.communicate(timeout=60)
        assert process.returncode == 0, self.said
        ran = [json.loads(line) for line in self._report.read_text().splitlines()]
        self._report.unlink()
        assert ran[-1][1] == process.pid, "what it became is the process that was started"
        return [(name, words, environment) for name, _, words, environment in ran]


@pytest.fixture(params=SHELLS)
def installed(request, tmp_path):
    return Installed(tmp_path, request.param)


def test_the_script_is_for_the_plain_shell(installed):
    assert installed.shim.read_text().startswith("#!/bin/sh\n")


def test_a_launch_with_a_model_becomes_a_python_that_was_tried(installed):
    tried, began = installed.run(*ODD)

    assert tried[:2] == ("py thon", ["-P", "-c", ""])
    assert (began[0], began[1][:2], began[1][3:]) == ("py thon", ["-P", "-c"], ODD)
    compile(began[1][2], "what it begins with", "exec")
    assert began[1][2].startswith("# pilotfish runner"), "or nobody would know it in a list of processes"
    assert began[2]["PILOTFISH_STOCK"] == str(installed.stock)


@pytest.mark.parametrize("code", [1, 3, 127, 137])
def test_an_interpreter_that_does_not_start_means_stock_with_untouched_words_and_environment(installed, code):
    installed.starts(code)
    given = {
        "LD_LIBRARY_PATH": f"{installed.here}:{installed.library}:/usr/lib/x",
        "GGML_BACKEND_PATH": f"{installed.here}/cuda/libggml-cuda.so",
        "ODD": "a\nb 'c'",
    }
    *_, (name, words, env) = installed.run(*ODD, **given)

    assert (name, words) == ("llama-server", ODD)
    assert {key: env.get(key) for key in given} == given
    assert not [key for key in env if key.startswith("PILOTFISH")]
    assert "does not start" in installed.said


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--port", "1", "--host", "127.0.0.1", "--no-webui", "--offline", "--verbose"], {}),
        (["--list-devices", "--offline", "--verbose"], {}),
        *((LAUNCH, {"PILOTFISH": word}) for word in SPELLINGS),
        ([], {}),
    ],
    ids=["device discovery", "device list", *SPELLINGS, "no words"],
)
def test_python_is_not_even_started_for(installed, words, env):
    assert [ran[:2] for ran in installed.run(*words, **env)] == [("llama-server", words)]


@pytest.mark.parametrize("word", ["", "on", "1", "offside"])
def test_a_word_that_is_not_off_leaves_it_to_the_decision(installed, word):
    decision, _ = installed.run(*LAUNCH, PILOTFISH=word)
    assert decision[0] == "py thon"


def test_a_missing_interpreter_means_stock(installed):
    installed.python.unlink()
    assert [ran[:2] for ran in installed.run(*ODD)] == [("llama-server", ODD)]
    assert "pilotfish overlay install" in installed.said


def test_an_interpreter_that_cannot_run_means_stock(installed):
    installed.python.write_text("#!/no/such/interpreter\n")
    assert [ran[:2] for ran in installed.run(*ODD)] == [("llama-server", ODD)]


def test_pilotfish_gets_the_library_path_without_ollamas_folders(installed):
    before = f"{installed.here}:{installed.here}/cuda_v13:/usr/lib/*:{installed.library}:/opt/x y"
    _, (_, _, env) = installed.run(*LAUNCH, LD_LIBRARY_PATH=before, GGML_BACKEND_PATH=f"{installed.here}/a.so")

    assert env["LD_LIBRARY_PATH"] == "/usr/lib/*:/opt/x y"
    assert "GGML_BACKEND_PATH" not in env
    restored = stock_environment(env)
    assert restored["LD_LIBRARY_PATH"] == before
    assert restored["GGML_BACKEND_PATH"] == f"{installed.here}/a.so"
    assert not [name for name in restored if name.startswith("PILOTFISH")]


def test_a_library_path_of_ollamas_alone_is_taken_away(installed):
    _, (_, _, env) = installed.run(*LAUNCH, LD_LIBRARY_PATH=str(installed.here))
    assert "LD_LIBRARY_PATH" not in env
    assert stock_environment(env)["LD_LIBRARY_PATH"] == str(installed.here)


def test_a_kill_reaches_what_was_started(installed):
    """Ollama kills the process it started; the child that was tried ends by itself."""
    installed.python.write_text("#!/bin/sh\nexec sleep 60\n")
    process = subprocess.Popen([*installed.shell, str(installed.shim), *LAUNCH])
    time.sleep(0.1)
    process.kill()
    assert process.wait(60) == -9


def test_macos_gets_its_library_path_back_for_stock(tmp_path):
    """There the kernel takes DYLD_* variables away from /bin/sh."""
    shim = tmp_path / "llama-server"
    stock = tmp_path / "lib" / "llama-server"
    stock.parent.mkdir()
    stock.write_text('#!/bin/sh\nprintf "%s" "$DYLD_LIBRARY_PATH"\n')
    stock.chmod(0o755)
    shim.write_text(shim_script(stock, tmp_path / "python", "darwin"))
    assert subprocess.run(["sh", shim], capture_output=True, text=True, check=True).stdout == str(stock.parent)


def test_marks_in_a_path_are_left_alone(tmp_path):
    text = shim_script(Path("/@PYTHON@/llama-server"), Path("/py"), "linux")
    assert "stock=/@PYTHON@/llama-server" in text
