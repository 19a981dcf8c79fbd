"""What counts as a crash while a model loads, and what does not."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotfish.ollama_overlay.attempts import FORGOTTEN_AFTER, TOO_MANY, Attempts

MODEL = Path("/models/blobs/sha256-1")
CRASHES = [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE]

LOADING = """
import os, resource, signal, sys, threading
from pathlib import Path
from pilotfish.ollama_overlay.attempts import Attempts

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def load():
    with Attempts(Path(sys.argv[1]), Path(sys.argv[2])).watched():
        print("loading", flush=True)
        exec(sys.argv[3])

thread = threading.Thread(target=load)  # as in the runner
thread.start()
thread.join()
"""


def load(state: Path, what: str) -> subprocess.Popen[str]:
    """A process that does `what` while it loads, and has begun."""
    command = [sys.executable, "-c", LOADING, str(state), str(MODEL), what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    return process


def crash(state: Path, number: int = signal.SIGSEGV) -> None:
    process = load(state, f"signal.raise_signal({int(number)})")
    assert process.wait(60) == -number, "it died of what it was, so that whoever waits for it sees that"


class TestCounted:
    @pytest.mark.parametrize("number", CRASHES)
    def test_every_fatal_signal(self, tmp_path: Path, number: int) -> None:
        crash(tmp_path, number)
        assert Attempts(tmp_path, MODEL).reason() == "", "one is no rule"
        crash(tmp_path, number)
        assert "the last 2 loads crashed" in Attempts(tmp_path, MODEL).reason()

    def test_an_assertion_in_a_library_which_calls_abort(self, tmp_path: Path) -> None:
        for _ in range(TOO_MANY):
            assert load(tmp_path, "os.abort()").wait(60) == -signal.SIGABRT
        assert "Aborted" in Attempts(tmp_path, MODEL).reason()

    def test_between_loads_that_ended_otherwise(self, tmp_path: Path) -> None:
        crash(tmp_path)
        load(tmp_path, "raise ValueError").wait(60)
        load(tmp_path, "pass").wait(60)
        crash(tmp_path)
        assert Attempts(tmp_path, MODEL).reason()

    def test_for_this_file_only(self, tmp_path: Path) -> None:
        for _ in range(TOO_MANY):
            crash(tmp_path)
        assert Attempts(tmp_path, Path("/models/blobs/sha256-2")).reason() == ""


class TestNotCounted:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
    def test_a_load_that_somebody_ended_however_often(self, tmp_path: Path, number: int) -> None:
        for _ in range(TOO_MANY + 1):
            process = load(tmp_path, "import time; time.sleep(600)")
            process.send_signal(number)
            if number == signal.SIGINT:  # Python waits for the thread; Ollama does not
                process.kill()
            process.wait(60)
        assert Attempts(tmp_path, MODEL).reason() == ""

    def test_a_load_that_fails(self, tmp_path: Path) -> None:
        for what in ("raise ValueError", "raise SystemExit(3)", "raise BaseException", "os._exit(1)"):
            load(tmp_path, what).wait(60)
        assert Attempts(tmp_path, MODEL).reason() == ""

    def test_what_was_before_a_load_that_succeeded(self, tmp_path: Path) -> None:
        for _ in range(TOO_MANY):
            crash(tmp_path)
        Attempts(tmp_path, MODEL).forget()
        assert Attempts(tmp_path, MODEL).reason() == ""

    @pytest.mark.parametrize(
        "jump", [FORGOTTEN_AFTER + 60, -FORGOTTEN_AFTER - 60], ids=["a day later", "a clock put back"]
    )
    def test_what_is_a_day_old_by_the_clock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
        for _ in range(TOO_MANY):
            crash(tmp_path)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + jump)
        assert Attempts(tmp_path, MODEL).reason() == ""


def test_a_load_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    with contextlib.suppress(ValueError), Attempts(tmp_path, MODEL).watched():
        assert len(list((tmp_path / "loading").iterdir())) == 1
        raise ValueError
    assert list((tmp_path / "loading").iterdir()) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_faulthandler_is_afterwards_as_it_was(tmp_path: Path, enabled: bool) -> None:
    code = (
        "import faulthandler, sys; from pathlib import Path; from pilotfish.ollama_overlay.attempts import Attempts\n"
        f"{'faulthandler.enable()' if enabled else 'pass'}\n"
        "with Attempts(Path(sys.argv[1]), Path('m')).watched(): assert faulthandler.is_enabled()\n"
        f"assert faulthandler.is_enabled() is {enabled}"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_a_state_folder_that_cannot_be_written_costs_the_count_only(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    attempts, loaded = Attempts(tmp_path / "state", MODEL), False
    with attempts.watched():
        loaded = True
    attempts.forget()
    assert loaded
    assert attempts.reason() == ""


@pytest.mark.parametrize("data", [b"", b"xx", bytes(range(128, 192)), b"\xff" * 4096, b"Fatal Python error"])
def test_a_file_of_another_kind_is_no_report(tmp_path: Path, data: bytes) -> None:
    attempts = Attempts(tmp_path, MODEL)
    attempts._path.parent.mkdir()
    attempts._path.write_bytes(data)
    assert attempts.reason() == ""
