"""Under a real Ollama: what cannot gain is stock's, and the daemon that comes along tells what the rest saved."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from pilotfish.ollama_overlay import tree
from tests.e2e.ollama_server import GREEDY, MODEL, SAME_KERNELS, serving
from tests.waiting import is_gone, wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

PILOTFISH = (sys.executable, "-m", "pilotfish.daemon.cli")
COPY = "Repeat this line three times: apple, pear, plum, cherry, apple, pear, plum, cherry."
PLAIN = '[speculation]\nparity = "stock"\n'  # without a certificate no width but 1 gives stock's ids


def run(server, *words):
    done = subprocess.run([*PILOTFISH, *words], env=server.environment, capture_output=True, text=True, check=True)
    return done.stdout


def is_stock(server):
    (process,) = (child for child in psutil.Process(server.process.pid).children() if "--port" in child.cmdline())
    return Path(process.exe()).name == "llama-server"


def answer(server):
    return server.client.generate(MODEL, COPY, options=GREEDY).response


@pytest.fixture
def command(overlay):
    """The second of the three lines that a user types."""
    return (*PILOTFISH, "overlay", "run", "--prefix", str(overlay.parent.parent))


@pytest.fixture
def socket():
    with tempfile.TemporaryDirectory(prefix="pf-") as short:  # the path of a socket must be
        yield {"PILOTFISH_SOCKET": f"{short}/s"}


def test_after_three_lines_status_tells_what_was_accepted_and_saved(overlay, folder, models, command, socket):
    assert overlay.name == tree.BINARY.name
    with serving(overlay, folder / "three-lines", models, {**SAME_KERNELS, **socket}, command) as server:
        for _ in range(3):
            answer(server)
        runner = wait_until(
            lambda: next((one for one in server.status()["runners"] if one["totals"]["requests"] == 3), None),
            "the daemon does not know what the runner did",
        )
        assert runner["totals"]["accepted"] > 0
        server.unload()
        (model,) = (model for model in server.status()["models"] if model["totals"])
        assert model["name"].startswith(MODEL)
        assert model["totals"]["accepted"] == runner["totals"]["accepted"]
        assert model["totals"]["saved_seconds"] == runner["totals"]["saved_seconds"]
        daemon = psutil.Process(server.status()["daemon"]["pid"])
    wait_until(lambda: is_gone(daemon), "the daemon outlives the Ollama that it came with")


def test_a_model_that_cannot_gain_is_stocks_at_once_from_its_second_load_on(overlay, folder, models, stock):
    place = folder / "cannot-gain"
    place.mkdir()
    (place / "pilotfish.toml").write_text(PLAIN)
    with serving(overlay, place, models, SAME_KERNELS) as server:
        said = answer(server)
        assert said == answer(stock)
        assert is_stock(server)
        assert [decision["decision"] for decision in server.decisions()] == ["runner", "stock"]
        server.unload()
        assert answer(server) == said
        assert [decision["decision"] for decision in server.decisions()] == ["runner", "stock", "stock"]
        (line,) = server.status()["stock"]
        assert line["model"].startswith(MODEL)
        assert "nothing to gain" in line["reason"]
        assert "on stock" in run(server, "models", MODEL)

        server.unload()
        server.config.write_text(PLAIN.replace("stock", "lane"))
        assert answer(server)
        assert not is_stock(server), "the config says something else"


def test_one_that_turns_out_so_while_it_runs_costs_no_request(overlay, folder, models, command, socket):
    with serving(overlay, folder / "turns-out", models, {**SAME_KERNELS, **socket}, command) as server:
        said = answer(server)
        assert not is_stock(server)
        (runner,) = wait_until(lambda: server.status()["runners"], "the daemon does not find the runner")
        process = psutil.Process(runner["pid"])
        server.config.write_text(PLAIN)
        wait_until(lambda: is_gone(process), "the runner stays, although nobody looks")

        assert answer(server) == said
        assert is_stock(server)
        assert len(server.launched()) == 2
