"""What is started beside a stock server: who may hold on to whose pipes, and which libraries it finds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pilotfish.daemon.certify import beside_stock
from pilotfish.ollama_overlay import certify_beside
from pilotfish.ollama_overlay.certify_beside import MODULE


@pytest.fixture
def started(monkeypatch):
    """The processes that are run."""
    calls = []
    monkeypatch.setattr(subprocess, "run", lambda command, **how: calls.append((command, how)))
    return calls


def test_it_is_told_whom_to_watch_and_holds_none_of_ollamas_pipes(started):
    certify_beside.certify_beside(17, ("/blob", "these", "60"), ollama_libraries=False)
    ((command, how),) = started
    assert command[:4] == ["/bin/sh", "-c", '"$@" &', "sh"], "a stock server waits for no child"
    assert command[4:] == [sys.executable, "-P", "-m", beside_stock.MODULE, "17", "/blob", "these", "60"]
    assert MODULE == beside_stock.MODULE
    assert [how[name] for name in ("stdin", "stdout", "stderr")] == [subprocess.DEVNULL] * 3
    assert how["start_new_session"]


def test_on_ollamas_libraries_it_has_the_environment_that_ollama_gave(started, monkeypatch):
    monkeypatch.setenv("PILOTFISH_STOCK", "/usr/lib/ollama/llama-server")
    monkeypatch.setenv("PILOTFISH_STOCK_LD_LIBRARY_PATH", "/usr/lib/ollama")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    certify_beside.certify_beside(17, ("/blob", "these", "60"), ollama_libraries=True)
    ((_, how),) = started
    assert how["env"]["LD_LIBRARY_PATH"] == "/usr/lib/ollama"
    assert how["env"]["LLAMA_CPP_LIB_PATH"] == "/usr/lib/ollama"
    assert how["env"]["PILOTFISH_STOCK"] == "/usr/lib/ollama/llama-server"


def test_what_cannot_be_started_costs_nothing(monkeypatch):
    def full(*command, **how):
        raise OSError("no processes left")

    monkeypatch.setattr(subprocess, "run", full)
    certify_beside.certify_beside(17, ("/blob", "these", "60"), ollama_libraries=False)
