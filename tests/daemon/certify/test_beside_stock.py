"""Certifying a model that stock serves, while its server does nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pilotfish.daemon.certify import beside_stock
from pilotfish.daemon.certify.beside_stock import LOCK, Computing, look_again, processor_time
from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.processes.folder_lock import take

JOB = "a job\n"
COPY_JOB = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.readline())"


@dataclass
class Server:
    """A process as its clock and its processor time say it, in seconds."""

    now: float = 0.0
    spent: float = 0.0

    def computing(self) -> Computing:
        return Computing(lambda: self.spent, lambda: self.now)

    def passes(self, seconds: float, share: float) -> None:
        self.now += seconds
        self.spent += share * seconds


def test_a_server_is_busy_while_it_loads_and_when_it_computes() -> None:
    server = Server()
    busy = server.computing()
    assert busy()
    server.passes(1.0, 1.6)
    assert busy()
    server.passes(1.0, 0.001)
    assert not busy()
    server.passes(0.1, 0.9)
    assert not busy(), "too short a while to say"
    server.passes(1.0, 0.9)
    assert busy()


def test_processor_time_is_that_of_a_process_until_it_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; sum(range(10**6)); time.sleep(600)"])
    try:
        spent = processor_time(process.pid)
        assert spent() >= 0
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie, as long as nobody asked how it ended
        with pytest.raises(psutil.Error):
            spent()
    finally:
        process.kill()
        process.wait()
    with pytest.raises(psutil.Error):
        spent()


@pytest.fixture
def verdicts(tmp_path: Path) -> LeftToStock:
    weights = tmp_path / "weights"
    weights.write_bytes(b"GGUF")
    os.utime(weights, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered
    found = LeftToStock(tmp_path / "state", weights)
    found.put("these", Left("its sliding window", time.time(), job=JOB))
    return found


def look(verdicts: LeftToStock, script: str, out: Path) -> bool:
    command = (sys.executable, "-c", script, str(out))
    return asyncio.run(look_again(verdicts, "these", lambda: False, 0.01, command))


def test_the_job_of_a_verdict_that_is_due_is_done_once(verdicts: LeftToStock, tmp_path: Path) -> None:
    assert look(verdicts, COPY_JOB, tmp_path / "out")
    assert (tmp_path / "out").read_text() == JOB
    (tmp_path / "out").unlink()
    assert not look(verdicts, COPY_JOB, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_that_makes_no_certificate_counts_as_a_try(verdicts: LeftToStock, tmp_path: Path) -> None:
    assert not look(verdicts, "raise SystemExit(1)", tmp_path / "out")
    left = verdicts.find("these")
    assert left is not None
    assert (left.tries, left.due) == (1, False)


def test_it_ends_with_the_server(verdicts: LeftToStock, tmp_path: Path) -> None:
    def gone() -> bool:
        raise psutil.NoSuchProcess(1)

    with pytest.raises(psutil.Error):
        asyncio.run(look_again(verdicts, "these", gone, 0.01))


def test_one_process_does_it_at_a_time(verdicts: LeftToStock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    (tmp_path / "state" / LOCK).mkdir(parents=True)
    held = take(tmp_path / "state" / LOCK)
    assert held is not None
    try:
        assert beside_stock.main([str(os.getpid()), str(tmp_path / "weights"), "these", "0"]) == 1
    finally:
        os.close(held)
    left = verdicts.find("these")
    assert left is not None
    assert left.tries == 0


def test_a_model_that_does_not_fit_once_more_is_left_alone(
    verdicts: LeftToStock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    weights = tmp_path / "weights"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4))
    assert beside_stock.main([str(os.getpid()), str(weights), "these", "0"]) == 1
    left = verdicts.find("these")
    assert left is not None
    assert left.tries == 0


def test_the_process_tries_once_and_ends(
    verdicts: LeftToStock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        words = [str(server.pid), str(tmp_path / "weights"), "these", "0.1"]
        done = subprocess.run([sys.executable, "-m", beside_stock.MODULE, *words], capture_output=True, check=False)
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 1, "nobody can do this job"
    left = verdicts.find("these")
    assert left is not None
    assert (left.tries, left.due) == (1, False)


def test_a_verdict_that_is_gone_meanwhile_is_not_looked_at(verdicts: LeftToStock, tmp_path: Path) -> None:
    verdicts.put("these", replace(Left("its sliding window", time.time(), job=JOB), until=1.0))
    assert not look(verdicts, COPY_JOB, tmp_path / "out")
