"""The main job where llama-cpp-python is not installed: ik_llama.cpp alone reads, tokenizes, samples and answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pilotfish.daemon.processes.ports import free_port
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.fakes.bare_package import bare_llama_cpp
from tests.fakes.state import keep_lanes, with_known_lanes
from tests.server_processes import answers
from tests.waiting import wait_until

pytestmark = pytest.mark.model

PILOTFISH = (sys.executable, "-m", "pilotfish.daemon.cli")
MODEL = "smollm2:135m"

# Read by every Python as it starts, so that no child finds the package either.
HIDING = """
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "llama_cpp" else find_spec(name, *more)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which nothing finds llama-cpp-python."""
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDING)
    config = tmp_path / "pilotfish.toml"
    config.write_text('[engine]\nchoice = "ik"\n')
    own = {
        "PYTHONPATH": str(hiding),
        "PILOTFISH_CONFIG": str(config),
        "PILOTFISH_STATE": str(with_known_lanes(tmp_path / "state")),
        "PILOTFISH_SOCKET": str(tmp_path / "socket"),
    }
    yield {**os.environ, **own}
    keep_lanes(tmp_path / "state")


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*words], env=environment, capture_output=True, text=True, timeout=280, check=False)


def test_nothing_finds_it(environment):
    look = "import importlib.util as u; print([u.find_spec(n) is None for n in ('llama_cpp', 'ik_llama_cpp')])"
    assert run(environment, sys.executable, "-c", look).stdout.strip() == "[True, False]"
    assert "No module named 'llama_cpp'" in run(environment, sys.executable, "-c", "import llama_cpp").stderr


@pytest.mark.long  # in short `make demo` does, which .ci/run begins with where no compiler is
def test_the_demo_compares_every_id(environment):
    done = run(environment, *PILOTFISH, "demo", "--json", "--tokens", "8")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    assert len(report["prompts"]) == 16


@pytest.fixture
def served(environment, tmp_path) -> Iterator[httpx.Client]:
    """A client of `pilotfish serve --demo`."""
    environment["PILOTFISH_HOST"] = host = f"127.0.0.1:{free_port()}"
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*PILOTFISH, "serve", "--demo"], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    with httpx.Client(base_url=f"http://{host}", timeout=240) as client:
        try:
            wait_until(lambda: answers(process, client, "/api/version", log), "it does not answer")
            yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_a_served_model_chats_greedily_seeded_and_within_a_schema(served):
    def chat(**more):
        asked = [{"role": "user", "content": "Name a fruit, a colour and a city."}]
        said = served.post("/api/chat", json={"model": MODEL, "messages": asked, "stream": False, **more})
        assert said.status_code == 200, said.text
        return said.json()

    options = {"num_predict": 12, "num_thread": 1}
    greedy = {**options, "temperature": 0}
    seeded = {**options, "temperature": 0.8, "seed": 42}
    assert (
        chat(options=greedy)["message"]["content"] == chat(options={**greedy, "speculate": False})["message"]["content"]
    )
    assert (
        chat(options=seeded)["message"]["content"] == chat(options={**seeded, "speculate": False})["message"]["content"]
    )
    assert chat(options=greedy)["pilotfish"]["lane"].startswith("ik: ")
    schema = {
        "type": "object",
        "properties": {"n": {"enum": ["a", "b"]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert json.loads(chat(options={**greedy, "num_predict": 64}, format=schema)["message"]["content"])["n"] in (
        "a",
        "b",
    )


def test_commands_that_read_a_vocabulary_need_it_no_more_than_those_that_read_none(environment, smollm2_path, tmp_path):
    listed = run(environment, *PILOTFISH, "models", "--models", str(tmp_path / "models"))
    assert listed.returncode == 0, listed.stderr
    few = ("--task", "list", "--tokens", "2", "--threads", "1", "--json")
    compared = run(environment, *PILOTFISH, "parity", str(smollm2_path), *few)
    assert compared.returncode == 0, compared.stderr
    assert json.loads(compared.stdout)["equal"] is True


def test_a_vocabulary_for_a_bridge_is_read_by_the_engine_that_is_there(environment, smollm2_path, pin_of, tmp_path):
    read = (
        "import sys; from pathlib import Path; from pilotfish.manifests.pins import pin_file\n"
        "from pilotfish.plugins.drafters._gguf_vocabulary import GGUFVocabulary\n"
        "print(GGUFVocabulary(pin_file(Path(sys.argv[1]), Path(sys.argv[2]))).encode('Hello, world! 12'))"
    )
    done = run(environment, sys.executable, "-c", read, str(smollm2_path), str(tmp_path))
    assert done.returncode == 0, done.stderr
    with LlamaVerifier().vocabulary(pin_of(smollm2_path)) as theirs:
        assert json.loads(done.stdout) == theirs.encode("Hello, world! 12")


def test_a_package_without_its_library_is_named_and_what_to_do(environment, smollm2_path, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    environment.update(bare_llama_cpp(bare), PILOTFISH_CONFIG=str(tmp_path / "empty.toml"))
    (tmp_path / "empty.toml").touch()
    done = run(environment, *PILOTFISH, "parity", str(smollm2_path), "--engine", "llama", "--tokens", "2")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "pip install 'pilotfish[llama]'" in done.stderr
    assert "Traceback" not in done.stderr
