"""Stock Ollama and an overlaid one as processes that serve the same models, for `pilotfish bench --floor`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.processes.tied import tied_command
from pilotfish.hooks.errors import EngineError, UsageError

_REMEMBERED = ("certificates", "fingerprints.json")  # of the user's state: what was measured of engines and models
_SILENCE = 60.0  # seconds
_LOOK_SECONDS = 0.02
_OVERLAY_STATUS = (sys.executable, "-P", "-m", "pilotfish.daemon.cli", "overlay", "status", "--json")


@dataclass(frozen=True, slots=True)
class Ollamas:
    """The two programs to compare; `build` is what both are, for people."""

    stock: Path
    overlaid: Path
    build: str


def installed(prefix: Path | None = None) -> Ollamas:
    """The overlay at `prefix`, or the user's, and the Ollama it was made from. Raises UsageError without one."""
    words = [*_OVERLAY_STATUS, *(("--prefix", str(prefix)) if prefix else ())]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)
        record = said["record"]
        if record is None:
            raise UsageError(f"no overlay is installed in {said['prefix']}; make one with: pilotfish overlay install")
        if said["drift"]:
            raise UsageError(f"{said['drift'][0]}; repair the overlay with: pilotfish overlay install")
        build = record["build"]["version"]
        return Ollamas(Path(record["original"]["binary"]), Path(said["prefix"], "bin", "ollama"), build)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"`pilotfish overlay status` failed: {done.stderr.strip() or error}") from error


@dataclass(frozen=True, slots=True)
class OllamaReply:
    """One answer as its client sees it. Times are seconds; `first` and `seconds` begin with the request.

    `load` is what Ollama says that loading took of them, and is in neither.
    """

    text: str
    prompt: int  # tokens
    tokens: int
    reason: str  # why it ended
    first: float
    seconds: float
    load: float
    pieces: tuple[str, ...] = ()  # a text for each token, and
    logprobs: tuple[float, ...] = ()  # how probable it was, where that was asked for

    @property
    def counts(self) -> tuple[int, int, str]:
        """What must be alike from server to server, as far as it can be counted."""
        return self.prompt, self.tokens, self.reason


class OllamaServer:
    """A running `ollama serve`."""

    def __init__(self, name: str, client: Client, process: ChildServer) -> None:
        self.name = name
        self.peak = 0  # bytes, of what `memory` said so far
        self._client = client
        self._process = process

    async def generate(
        self, model: str, prompt: str, options: Mapping[str, Any], *, logprobs: bool = False
    ) -> OllamaReply:
        """The answer to a prompt as it stands. Raises WorldError."""
        asked = {"model": model, "prompt": prompt, "raw": True, "options": options, "logprobs": logprobs}
        return await self._ask("/api/generate", asked)

    async def chat(self, model: str, messages: list[dict[str, str]], options: Mapping[str, Any]) -> OllamaReply:
        """The answer in a chat. Raises WorldError."""
        return await self._ask("/api/chat", {"model": model, "messages": messages, "options": options})

    async def unload(self, model: str) -> None:
        """End the process that serves a model, if one does, and wait until it is gone."""
        before = self._serving()
        if not before:
            return
        async with contextlib.aclosing(self._stream("/api/generate", {"model": model, "keep_alive": 0})) as events:
            async for _ in events:
                pass
        while self._serving() >= before:  # noqa: ASYNC110 - Ollama notifies nobody
            await asyncio.sleep(_LOOK_SECONDS)

    def model_port(self) -> int:
        """Where the process that serves a model listens. Raises EngineError while none does."""
        for process in psutil.Process(self._process.pid).children():
            with contextlib.suppress(psutil.Error, ValueError, IndexError):
                words = process.cmdline()
                return int(words[words.index("--port") + 1])
        raise EngineError(f"{self.name} Ollama serves no model")

    def memory(self) -> int:
        """Bytes that the processes which serve models hold, shared pages counted once for all who share them."""
        held = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    info = process.memory_full_info()
                    held += getattr(info, "pss", info.rss)
        self.peak = max(self.peak, held)
        return held

    def _serving(self) -> int:
        """How many processes serve models."""
        return len(psutil.Process(self._process.pid).children())

    def _stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        return self._client.stream(path, body)

    async def _ask(self, path: str, body: Mapping[str, Any]) -> OllamaReply:
        return await read_reply(self._stream(path, {"keep_alive": -1, **body}))


async def read_reply(events: AsyncGenerator[dict[str, Any], None]) -> OllamaReply:
    """The events of an answer, timed as they come. Raises WorldError, and EngineError for one without an end."""
    started, first, text = time.monotonic(), 0.0, ""
    last: dict[str, Any] = {}
    tokens: list[dict[str, Any]] = []
    async with contextlib.aclosing(events):
        async for event in events:
            piece = event.get("response") or event.get("message", {}).get("content", "")
            first = first or (time.monotonic() if piece else 0.0)
            text, last = text + piece, event
            tokens += event.get("logprobs") or ()
    if not last.get("done"):
        raise EngineError("the answer broke off")
    ended, load = time.monotonic(), last.get("load_duration", 0) / 1e9
    return OllamaReply(
        text,
        last.get("prompt_eval_count", 0),
        last.get("eval_count", 0),
        last.get("done_reason", ""),
        (first or ended) - started - load,
        ended - started - load,
        load,
        tuple(token["token"] for token in tokens),
        tuple(token["logprob"] for token in tokens),
    )


@contextlib.asynccontextmanager
async def serving(
    name: str, binary: Path, models: Path, folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[OllamaServer]:
    """`binary serve` on the store `models`, ended with the block; `folder` is its own. Raises EngineError."""
    port = free_port()
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OLLAMA_", "PILOTFISH"))}
    own = {
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "PILOTFISH_HOST": f"127.0.0.1:{port}",  # where `binary` is our own command
        "OLLAMA_MODELS": str(models),
        "OLLAMA_NOPRUNE": "1",
        "PILOTFISH_CERTIFY": "off",  # an idle runner would certify while the other server is timed
        "PILOTFISH_SOCKET": str(folder / "none.sock"),  # no daemon of the user's is to change anything meanwhile
    }
    command = tied_command([str(binary), "serve"], signal.SIGTERM)  # at which it ends what serves its models
    process = await ChildServer.start(command, port, f"{name} Ollama", {**inherited, **own, **environment})
    try:
        async with Client(process.url) as client:
            if not await process.comes_up(client.alive, _SILENCE):
                raise EngineError(f"{name} Ollama does not come up: {await process.last_words()}")
            yield OllamaServer(name, client, process)
    finally:
        await process.stop()


def remembered_state(source: Path, folder: Path) -> Path:
    """A state folder in `folder` with what `source` knows of engines and models."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _REMEMBERED:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True)
        elif (source / name).is_file():
            shutil.copy2(source / name, folder / name)
    return folder
