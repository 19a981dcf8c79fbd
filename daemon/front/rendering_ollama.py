"""Prompts rendered by Ollama itself, in a process of pilotfish's own that holds templates and no weights."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.front.prompts import ChatWish, PromptRenderer
from pilotfish.daemon.front.requests import Message
from pilotfish.daemon.front.settings import FrontSettings
from pilotfish.daemon.front.twins import Twins
from pilotfish.daemon.front.upstream_client import UpstreamAway, UpstreamClient
from pilotfish.daemon.http.json_text import parse_object
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.processes.tied import tied_command
from pilotfish.hooks.errors import UnsupportedRequest
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.front")

USUAL_PLACES = (
    "/usr/local/bin/ollama",
    "/opt/homebrew/bin/ollama",
    "/Applications/Ollama.app/Contents/Resources/ollama",
)
_OPTIONS = {"num_gpu": 0, "num_ctx": 512, "num_thread": 1}  # of twins: as little as can be
_PATIENCE = 60.0  # seconds without a word until it counts as not starting
_RENDERS_WITHIN = 60.0  # seconds, of which nearly all are for the load of a twin


class UpstreamRenderer:
    """The upstream itself, which loads a model for it."""

    def __init__(self, client: UpstreamClient) -> None:
        self._client = client

    async def __call__(self, model: ServedModel, messages: Sequence[Message], wish: ChatWish) -> str:
        if model.messages:
            raise UnsupportedRequest(f"model '{model.short}' has messages of its own, which the upstream would repeat")
        return await self._client.rendered(chat_body(model, messages, wish))


def chat_body(model: ServedModel, messages: Sequence[Message], wish: ChatWish) -> dict[str, Any]:
    """A body of `/api/chat` that has all of these messages rendered."""
    body: dict[str, Any] = {"model": model.name.full, "messages": [_message(message) for message in messages]}
    if wish.tools:
        body["tools"] = list(wish.tools)
    if wish.think is not None:
        body["think"] = wish.think
    return {**body, "truncate": False}


def _message(message: Message) -> dict[str, Any]:
    said = {
        "thinking": message.thinking,
        "tool_calls": [_call(call) for call in message.calls],
        "tool_name": message.tool_name,
        "tool_call_id": message.tool_call_id,
    }
    return {"role": message.role, "content": message.content, **{key: value for key, value in said.items() if value}}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """As Ollama takes it: with arguments that are an object."""
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        function["arguments"] = parse_object(function["arguments"].encode())
    return {**call, "function": function}


@contextlib.asynccontextmanager
async def rendering(
    settings: FrontSettings, client: UpstreamClient | None, store: Store
) -> AsyncIterator[PromptRenderer | None]:
    """Who renders prompts besides the chat templates that come with weights."""
    upstream = settings.upstream
    if upstream is None or client is None or upstream.templates == "own":
        yield None
    elif upstream.templates == "upstream":
        yield UpstreamRenderer(client)
    elif binary := settings.ollama or find_ollama():
        folder = hashlib.sha256(bytes(store.root)).hexdigest()[:12]
        ollama = RenderingOllama(binary, Twins(state_dir() / "templates" / folder, store), client)
        try:
            yield ollama
        finally:
            await ollama.aclose()
    else:
        log.warning("there is no ollama on the PATH to render prompts: the chat templates that come with weights do")
        yield None


def find_ollama() -> str:
    """The `ollama` on the PATH or in a usual place; empty where there is none."""
    found = shutil.which("ollama")
    return found or next((place for place in USUAL_PLACES if os.access(place, os.X_OK)), "")


class RenderingOllama:
    """Renders for any model of the store; its process starts with the first prompt. Belongs to the event loop."""

    def __init__(self, binary: str, twins: Twins, upstream: UpstreamClient) -> None:
        """`upstream` is the server whose prompts these are to be: one of another version is warned of."""
        self._binary = binary
        self._twins = twins
        self._upstream = upstream
        self._lock = asyncio.Lock()
        self._process: ChildServer | None = None
        self._client: UpstreamClient | None = None

    async def __call__(self, model: ServedModel, messages: Sequence[Message], wish: ChatWish) -> str:
        await asyncio.to_thread(self._twins.write, model)
        client = await self._running()
        body = {**chat_body(model, messages, wish), "options": _OPTIONS, "keep_alive": "30m"}
        try:
            async with asyncio.timeout(_RENDERS_WITHIN):
                return await client.rendered(body)
        except TimeoutError as error:
            await self._give_up(client)
            raise UpstreamAway(f"{self._binary} rendered no prompt in {_RENDERS_WITHIN:.0f} s; it is ended") from error

    async def aclose(self) -> None:
        """End the process."""
        if self._client is not None:
            await self._client.aclose()
        if self._process is not None:
            await self._process.stop()

    async def _running(self) -> UpstreamClient:
        async with self._lock:
            if self._process is None or self._client is None or not self._process.alive:
                await self.aclose()
                self._process, self._client = await self._start()
            return self._client

    async def _give_up(self, hung: UpstreamClient) -> None:
        """The next prompt is for another process, unless one has begun already."""
        async with self._lock:
            if self._client is hung:
                await self.aclose()
                self._client = None

    async def _start(self) -> tuple[ChildServer, UpstreamClient]:
        port = free_port()
        command = tied_command([self._binary, "serve"], signal.SIGTERM)  # it has children of its own
        environment = _environment(self._twins.root, port)
        try:
            process = await ChildServer.start(command, port, "ollama for templates", environment)
        except OSError as error:
            raise UpstreamAway(f"{self._binary} cannot be started: {error}") from error
        client = UpstreamClient(ServerAddress("127.0.0.1", port), self._upstream.mark)
        if not await process.comes_up(lambda: _answers(client), _PATIENCE):
            words = await process.last_words()
            await client.aclose()
            await process.stop()
            raise UpstreamAway(f"{self._binary} serve does not come up: {words}")
        log.info("%s renders prompts, on port %d", self._binary, port)
        await self._compare(client)
        return process, client

    async def _compare(self, client: UpstreamClient) -> None:
        with contextlib.suppress(UpstreamAway):
            mine, theirs = [(await asked.version())[1].get("version") for asked in (client, self._upstream)]
            if mine != theirs:
                what = "may render prompts otherwise than the upstream; put the upstream's own ollama on the PATH"
                log.warning("%s is version %s, the upstream %s: it %s", self._binary, mine, theirs, what)


async def _answers(client: UpstreamClient) -> bool:
    try:
        status, _ = await client.version()
    except UpstreamAway:
        return False
    return status == 200


def _environment(root: Path, port: int) -> Mapping[str, str]:
    """Nothing of the user's own server's, but for how templates are chosen; no weights are worth an overlay."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "PILOTFISH"))}
    if chosen := os.environ.get("OLLAMA_GO_TEMPLATE"):
        kept["OLLAMA_GO_TEMPLATE"] = chosen
    own = {
        "HOME": str(root),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_MODELS": str(root),
        "OLLAMA_NOPRUNE": "1",
        "OLLAMA_KEEP_ALIVE": "30m",
        "PILOTFISH": "off",
    }
    return {**kept, **own}
