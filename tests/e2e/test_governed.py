"""A daemon beside an overlaid Ollama: its changes come between two requests, and its end costs nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.e2e.ollama_server import MODEL, SAME_KERNELS, SEEDED, serving
from tests.waiting import wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

LINES = "Write ten lines, each starting with Alpha."
DRAFTER = """\
from pathlib import Path
from pilotfish.hooks import HistoryDrafter, Placement, hookimpl

class Echo(HistoryDrafter):
    name = "echo"
    placement = Placement.INLINE

    def open(self, target, prompt):
        with Path(__file__).with_name("opened").open("a") as file:
            file.write("x")
        return super().open(target, prompt)

    def suggest(self, tokens, k):
        return tokens[-k:]

@hookimpl
def pilotfish_register_drafters(register, config):
    register("echo", Echo)
"""


@pytest.fixture(scope="module")
def server(overlay, folder, models):
    """An overlaid server with a state, a config and a socket of its own; without a daemon yet."""
    with serving(overlay, folder / "governed", models, SAME_KERNELS) as server:
        yield server


@pytest.fixture
def daemon(server):
    """`daemon()` starts one and waits until it knows the loaded model."""
    started = []

    def start():
        process = subprocess.Popen(
            [*pilotfish(), "daemon"], env=server.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        started.append(process)
        wait_until(lambda: len(server.status()["runners"]) == 1, "the daemon does not find the runner")
        return process

    server.client.generate(MODEL, "Hi", options={"num_predict": 2})
    yield start
    for process in started:
        process.kill()
        process.wait()


def pilotfish():
    return (sys.executable, "-c", "from pilotfish.daemon.cli import main; main()")


def run(server, *words):
    done = subprocess.run([*pilotfish(), *words], env=server.environment, capture_output=True, text=True, check=True)
    return done.stdout


def state_of(server):
    return server.status()["runners"][0]["state"]


def answer(server, prompt=LINES):
    return server.client.generate(MODEL, prompt, options=SEEDED).response


def test_switched_off_while_a_client_streams(server, daemon):
    daemon()
    speculative = answer(server)
    stream = server.client.generate(MODEL, LINES, options={**SEEDED, "num_predict": 200}, stream=True)
    pieces = [next(iter(stream)).response]
    run(server, "off")
    pieces += [chunk.response for chunk in stream]
    wait_until(lambda: state_of(server) in ("off", "plain"), "the runner was not told")
    before = server.drafted()
    plain = answer(server)

    assert "".join(pieces).startswith(speculative), "the running answer finished as it began"
    assert plain == speculative
    assert server.drafted() == before
    assert len(server.launched()) == 1, "nothing was loaded again"

    run(server, "on")
    wait_until(lambda: state_of(server) not in ("off", "plain"), "the runner was not told")
    assert answer(server) == speculative


def test_a_killed_daemon_costs_no_answer_and_a_new_one_finds_the_runner(server, daemon):
    process = daemon()
    expected = answer(server)
    stream = server.client.generate(MODEL, LINES, options=SEEDED, stream=True)
    pieces = [next(iter(stream)).response]
    process.send_signal(signal.SIGKILL)
    process.wait()
    pieces += [chunk.response for chunk in stream]

    assert "".join(pieces) == expected
    assert answer(server) == expected
    assert not server.status()["daemon"]["running"]
    daemon()


def test_a_drafter_dropped_into_the_folder_serves_the_next_request(server, daemon):
    plugins = server.config.parent / "plugins"
    plugins.mkdir(mode=0o755)
    server.config.write_text('[plugins]\nfolders = ["plugins"]\n[drafters]\norder = ["echo"]\n')
    daemon()
    expected = answer(server)
    (plugins / "echo.py").write_text(DRAFTER)
    wait_until(lambda: server.status()["runners"][0]["drafters"] == ["echo"], "the drafter was not taken")
    assert answer(server) == expected
    assert (plugins / "opened").read_text() == "x"

    (plugins / "echo.py").write_text("raise RuntimeError('broken')\n")
    wait_until(lambda: server.status()["runners"][0]["drafters"] == [], "the broken drafter stays")
    assert answer(server) == expected
    assert (plugins / "opened").read_text() == "x"
