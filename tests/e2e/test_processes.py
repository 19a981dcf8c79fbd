"""Loading, unloading, dying: what an overlaid Ollama does with the processes that serve its models."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import ollama
import psutil
import pytest

from pilotfish.ollama_overlay import tree
from tests.e2e.ollama_server import GREEDY, MODEL, serving
from tests.waiting import is_gone, wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

SHORT = {**GREEDY, "num_predict": 8}


@pytest.fixture(autouse=True)
def one_model_at_a_time(request):
    """Nothing is loaded at first, so that a server has one child at most."""
    if "overlaid" in request.fixturenames:
        request.getfixturevalue("overlaid").unload()


def children(server):
    """The processes that serve models, without what they started themselves."""
    return psutil.Process(server.process.pid).children()


def is_ours(process):
    return "pilotfish" in " ".join(process.cmdline())


def test_the_process_ollama_started_is_the_runner_itself(overlaid):
    overlaid.client.generate(MODEL, "Hi", options=SHORT)

    (runner,) = children(overlaid)
    assert is_ours(runner)
    assert runner.cmdline()[0] == sys.executable, "the shim's shell was replaced"


def test_ps_shows_the_size_that_stock_shows(overlaid, stock):
    for server in (overlaid, stock):
        server.client.generate(MODEL, "Hi", options=SHORT)
    ours, theirs = (server.client.ps().models[0] for server in (overlaid, stock))

    assert ours.size == pytest.approx(theirs.size, rel=0.1)
    assert (ours.size_vram, ours.context_length) == (theirs.size_vram, theirs.context_length)


def test_keep_alive_zero_ends_the_runner(overlaid):
    overlaid.client.generate(MODEL, "Hi", options=SHORT)
    (runner,) = children(overlaid)
    overlaid.unload()

    wait_until(lambda: not runner.is_running(), "the runner lives on")


def test_after_a_killed_runner_the_next_request_loads_again(overlaid):
    overlaid.client.generate(MODEL, "Hi", options=SHORT)
    (runner,) = children(overlaid)
    os.kill(runner.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(runner), "it was not killed")

    def answers():
        try:
            return bool(overlaid.client.generate(MODEL, "Hi", options=SHORT).response)
        except ollama.ResponseError:  # stock's own error, once, for a request that met the dead process
            return False

    wait_until(answers, "it was not loaded again")
    assert children(overlaid)[0].pid != runner.pid


def test_what_the_runner_cannot_load_the_stock_server_does(overlay, folder, models):
    place = folder / "broken-config"
    place.mkdir()
    (place / "pilotfish.toml").write_text('[engine]\nchoice = "llama"\n[verifiers.llama]\nlog = "nowhere"\n')
    with serving(overlay, place, models) as server:
        assert server.client.generate(MODEL, "Hi", options=SHORT).response
        assert [decision["decision"] for decision in server.decisions()] == ["runner", "stock"]
        assert server.decisions()[-1]["reason"].startswith("cannot load")
        (process,) = children(server)
        assert Path(process.exe()).name == "llama-server"
        assert not [name for name in process.environ() if name.startswith("PILOTFISH_STOCK")]


def test_off_in_the_environment_means_stock(overlay, folder, models):
    with serving(overlay, folder / "off", models, {"PILOTFISH": "off"}) as server:
        assert server.client.generate(MODEL, "Hi", options=SHORT).response
        (process,) = children(server)
        assert Path(process.exe()).name == "llama-server"
        assert server.decisions() == []


def test_without_the_python_environment_ollama_is_stock(ollama_binary, folder, models):
    python = folder / "environment" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    prefix = folder / "overlay-without-python"
    tree.install(prefix, ollama_binary, folder / "install-state", python)
    python.unlink()

    with serving(prefix / tree.BINARY, folder / "no-python", models) as server:
        assert server.client.generate(MODEL, "Hi", options=SHORT).response
        (process,) = children(server)
        assert Path(process.exe()).name == "llama-server"
    assert any("is gone" in line for line in tree.status(prefix, folder / "install-state").drift)
