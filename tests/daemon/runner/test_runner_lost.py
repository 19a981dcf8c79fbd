"""A runner whose engine's thread ends: the process ends with it, so that Ollama loads the model again."""

from __future__ import annotations

import sys

import httpx
import pytest

from tests.server_processes import running

# The runner with a scripted engine, whose thread meets something that no job can raise.
PROGRAM = """
import sys
from pilotfish.daemon.runner import engine_thread, main
from pilotfish.ollama_overlay import start
from tests.daemon.runner.scripted import ScriptedGenerator, card

generator = ScriptedGenerator()
main._load = lambda *given: (generator, card(generator.engine))
begin = engine_thread.EngineThread._begin

def begin_or_end(thread, generator, job):
    if job.request.n_predict == 5:
        raise SystemExit("the thread is at its end")
    begin(thread, generator, job)

engine_thread.EngineThread._begin = begin_or_end
sys.exit(start.main(sys.argv[1:]))
"""


@pytest.fixture
def lost(tmp_path):
    """A runner as the shim starts it, and the file that its stock server would write."""
    stock = tmp_path / "llama-server"
    stock.write_text(f"#!/bin/sh\ntouch {tmp_path / 'became-stock'}\n")
    stock.chmod(0o755)
    model = tmp_path / "model.gguf"
    model.touch()
    environment = {"PILOTFISH_STATE": str(tmp_path / "state"), "PILOTFISH_CONFIG": "", "PILOTFISH_STOCK": str(stock)}
    command = (sys.executable, "-c", PROGRAM)
    with running(command, model, tmp_path / "log", "-c", "512", env=environment) as server:
        yield server, tmp_path / "became-stock"


def test_the_process_ends_with_1_and_a_reason_and_does_not_become_stock(lost):
    server, became_stock = lost
    assert server.post("/completion", prompt="2 3", n_predict=3).status_code == 200
    try:
        answer = server.post("/completion", prompt="2 3", n_predict=5)
    except httpx.TransportError:  # the process was quicker
        pass
    else:
        assert answer.status_code == 500
    assert server.process.wait(60) == 1
    assert "the engine's thread has ended (SystemExit: the thread is at its end" in server.log.read_text()
    assert not became_stock.exists()
