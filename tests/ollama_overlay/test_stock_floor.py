"""What a runner that Ollama started stands on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pilotfish.daemon.control import decision_log
from pilotfish.daemon.runner.floor import NO_FLOOR
from pilotfish.ollama_overlay.attempts import FOLDER
from pilotfish.ollama_overlay.stock_floor import StockFloor, floor_of_this_process

MODEL = Path("/models/blobs/sha256-1")


def test_a_process_that_the_shim_did_not_start_has_none(monkeypatch):
    monkeypatch.delenv("PILOTFISH_STOCK", raising=False)
    assert floor_of_this_process() is NO_FLOOR


def test_one_that_the_shim_started_has_stock_with_the_environment_that_ollama_gave(monkeypatch):
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.setenv("PILOTFISH_STOCK_LD_LIBRARY_PATH", "/theirs")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/ours")
    floor = floor_of_this_process()
    stock = floor.stock()

    assert floor.engine_log_is_read
    assert stock.program == "/stock"
    assert stock.environment["LD_LIBRARY_PATH"] == "/theirs"
    assert not [name for name in stock.environment if name.startswith("PILOTFISH_STOCK")]


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """`reports()`: the crash reports in the state folder."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path))
    return lambda: list((tmp_path / FOLDER).glob("*"))


def crash(model: Path) -> None:
    """Load `model` in a process that crashes over it."""
    program = (
        "import os, pathlib, signal, sys; from pilotfish.ollama_overlay.stock_floor import StockFloor\n"
        "with StockFloor('/stock').loading(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program, str(model)]) < 0


def test_a_crash_counts_until_a_load_ends_well(reports):
    assert StockFloor("/stock").crashed(MODEL) == ""
    crash(MODEL)
    assert len(reports()) == 1
    crash(MODEL)
    assert StockFloor("/stock").crashed(MODEL).startswith("the last 2 loads crashed")
    with pytest.raises(ValueError, match="no such model"), StockFloor("/stock").loading(MODEL):
        raise ValueError("no such model")
    assert len(reports()) == 1, "a load that failed proves nothing"
    with StockFloor("/stock").loading(MODEL):
        pass
    assert reports() == []


def test_landing_becomes_the_stock_server(monkeypatch, reports):
    became = []
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.setattr(os, "execve", lambda program, words, environment: became.append((program, words)))
    StockFloor("/stock").land("a reason", ["--model", "m"])
    assert became == [("/stock", ["/stock", "--model", "m"])]


def test_what_a_lane_set_in_the_environment_is_not_stocks(monkeypatch, reports):
    became = []
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.delenv("GGML_CPU_TILED_MM", raising=False)
    monkeypatch.setattr(os, "execve", lambda program, words, environment: became.append(environment))
    floor = StockFloor("/stock")
    monkeypatch.setenv("GGML_CPU_TILED_MM", "0")
    floor.land("a reason", ["--model", "m"])
    assert "GGML_CPU_TILED_MM" not in became[0]
    assert "GGML_CPU_TILED_MM" not in floor.stock().environment


def test_landing_is_the_last_decision_about_the_model(monkeypatch, reports, tmp_path):
    monkeypatch.setenv("PILOTFISH_STOCK", "/stock")
    monkeypatch.setattr(os, "execve", lambda *given: None)
    decision_log.record(tmp_path, "m.gguf", "runner", "speculation is on")
    StockFloor("/stock").land("nothing to gain", ["--model", "/models/m.gguf"])
    last = decision_log.read(tmp_path)[-1]
    assert (last.model, last.decision, last.reason) == ("m.gguf", "stock", "nothing to gain")
