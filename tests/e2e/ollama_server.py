"""A real `ollama serve` as a process, with a home, a model store and a port of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import ollama
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.processes.ports import free_port
from pilotfish.manifests.remembered import FILE_NAME
from tests.fakes.state import SHARED, keep_lanes, with_known_lanes
from tests.server_processes import answers
from tests.waiting import wait_until

CONTEXT = 2048
MODEL = "smol"  # Ollama renders its prompts
BARE = "bare"  # no template: llama-server renders them
GREEDY = {"temperature": 0, "num_predict": 48}
SEEDED = {"temperature": 0.8, "seed": 42, "repeat_penalty": 1.1, "num_predict": 48}

# Both servers of a comparison get the same cache types: only then do stock and lane compute with the same kernels.
SAME_KERNELS = {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": "q8_0"}


class OllamaServer:
    """A running server. `client` is the official Python client, `http` a plain one."""

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, log: Path, state: Path, environment: dict[str, str]
    ) -> None:
        self.process, self.log, self.state = process, log, state
        self.config = state.parent / "pilotfish.toml"
        self.environment = environment
        self.url = f"http://127.0.0.1:{port}"
        self.client = ollama.Client(host=self.url, timeout=240)
        self.http = httpx.Client(base_url=self.url, timeout=240)

    def wait_until_it_answers(self) -> None:
        wait_until(lambda: answers(self.process, self.http, "/api/version", self.log), "ollama serve does not answer")

    def unload(self) -> None:
        """End every model's process and wait until Ollama has noticed."""
        for running in self.client.ps().models:
            self.client.generate(running.model or "", keep_alive=0)
        wait_until(lambda: not self.client.ps().models, "a model is still loaded")

    def launched(self) -> list[str]:
        """Every command that loaded a model, oldest first."""
        return re.findall(r'msg="starting llama-server" cmd="([^"]*)"', self.log.read_text(errors="replace"))

    def runner(self) -> httpx.Client:
        """A client of the process that serves the model loaded last, ours or stock."""
        found = re.search(r"--port (\d+)", self.launched()[-1])
        assert found is not None
        return httpx.Client(base_url=f"http://127.0.0.1:{found[1]}", timeout=60)

    def drafted(self) -> int:
        """Tokens that the runner loaded last drafted so far."""
        lines = self.runner().get("/metrics").text.splitlines()
        (total,) = (line for line in lines if line.startswith("pilotfish_drafted_tokens_total "))
        return int(float(total.split()[-1]))

    def status(self) -> dict[str, Any]:
        """What `pilotfish status --json` says in this server's environment, without a process of its own: it is asked
        again and again until something shows.
        """
        done = CliRunner().invoke(cli, ["status", "--json"], env=self.environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def decisions(self) -> list[dict[str, Any]]:
        """What the shim wrote down, oldest first."""
        path = self.state / "decisions.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def serving(
    binary: Path,
    folder: Path,
    models: Path,
    env: Mapping[str, str] | None = None,
    command: Sequence[str | Path] = (),
) -> Iterator[OllamaServer]:
    """`binary serve`, or `command`, which becomes it or stands before one (`{port}` is where it is expected to listen);
    ended afterwards with every process it started.

    What an earlier server of these models found out about them is known: a lane is checked once for each setting.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    known = models.parent if (models.parent / FILE_NAME).exists() else SHARED
    state = with_known_lanes(folder / "state", known)
    config = folder / "pilotfish.toml"
    config.touch()
    own = {
        "HOME": str(folder),
        "OLLAMA_MODELS": str(models),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_NOPRUNE": "1",
        "PILOTFISH_STATE": str(state),
        "PILOTFISH_CONFIG": str(config),
        "PILOTFISH_SOCKET": str(folder / "socket"),
        "PILOTFISH_CERTIFY": "off",  # the cores are for the tests
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "PILOTFISH"))}
    environment = {**inherited, **own, **(env or {})}
    with (folder / "log").open("wb") as output:
        launch = [str(part).format(port=port) for part in command or (binary, "serve")]
        process = subprocess.Popen(launch, stdout=output, stderr=subprocess.STDOUT, env=environment)
    server = OllamaServer(process, port, folder / "log", state, environment)
    try:
        server.wait_until_it_answers()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        server.http.close()
        keep_lanes(state, models.parent)
