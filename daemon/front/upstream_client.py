"""What the front itself asks the Ollama behind it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pilotfish.daemon.front.errors import StatusError
from pilotfish.daemon.http.tunnel import CONNECT, ServerAddress
from pilotfish.hooks.errors import ConfigError, EngineError

log = logging.getLogger("pilotfish.front")

LOOP = 508  # the status of a request that came back to where it had been
_PATIENCE = aiohttp.ClientTimeout(total=CONNECT)


class UpstreamAway(EngineError):
    """The server behind this one does not answer, or not as Ollama does."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What the upstream says to a page of another origin: whether it may, and the headers of an answer to it."""

    allowed: bool
    headers: Mapping[str, str] = field(default_factory=dict)


class UpstreamClient:
    """Requests of the front's own, all of which carry its mark. Every method may raise UpstreamAway."""

    def __init__(self, address: ServerAddress, mark: str) -> None:
        self.address = address
        self.mark = mark
        self._session = aiohttp.ClientSession(
            base_url=address.url,
            headers={"Via": mark},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._session.close()

    async def version(self) -> tuple[int, Mapping[str, Any]]:
        """Status and content of `/api/version`."""
        async with self._asked("GET", "/api/version", timeout=_PATIENCE) as answer:
            return answer.status, await _object(answer) if answer.status == 200 else {}

    async def loaded(self) -> list[Mapping[str, Any]]:
        """The entries of `/api/ps`."""
        async with self._asked("GET", "/api/ps", timeout=_PATIENCE) as answer:
            models = (await _object(answer)).get("models")
            return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []

    async def admission(self, origin: str, host: str) -> Admission:
        """What it says to a page from `origin` that names it `host`."""
        said_by = {"Origin": origin, "Host": host}
        async with self._asked("GET", "/api/version", headers=said_by, timeout=_PATIENCE) as answer:
            said = {
                name: ", ".join(answer.headers.getall(name))
                for name in answer.headers
                if name.lower() == "vary" or name.lower().startswith("access-control-")
            }
            return Admission(answer.status != 403, said)

    async def unload(self, model: str) -> None:
        """Have it unload what it may have loaded of this model."""
        async with self._asked("POST", "/api/generate", json={"model": model, "keep_alive": 0}, timeout=_PATIENCE):
            pass

    async def rendered(self, body: Mapping[str, Any]) -> str:
        """The prompt that it makes of a chat, for which it loads the model. Raises StatusError in its words."""
        asked = {**body, "stream": False, "_debug_render_only": True}
        async with self._asked("POST", "/api/chat", json=asked) as answer:
            said = await _object(answer)
            if answer.status != 200:
                raise StatusError(answer.status, _error(said))
            prompt = said.get("_debug_info", {}).get("rendered_template")
            if not isinstance(prompt, str):
                raise UpstreamAway(f"{self.address.url} does not tell the prompt it renders; set templates to own")
            return prompt

    @contextlib.asynccontextmanager
    async def _asked(self, method: str, path: str, **arguments: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(method, path, allow_redirects=False, **arguments) as answer:
                yield answer
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise UpstreamAway(f"{self.address.url} does not answer: {why}") from error


async def demand_ollama(client: UpstreamClient) -> None:
    """Raises ConfigError for an upstream that is a pilotfish, this one above all; one that is away may come yet."""
    url = client.address.url
    try:
        status, said = await client.version()
    except UpstreamAway as error:
        log.warning("%s; start Ollama there. Until then only models that are computed here are answered", error)
        return
    if status == LOOP:
        raise ConfigError(f"upstream: {url} is this server itself, or hands requests back to it; name an Ollama")
    if "pilotfish" in said:
        raise ConfigError(f"upstream: a pilotfish without an Ollama answers on {url}; name the Ollama")


async def _object(answer: aiohttp.ClientResponse) -> Mapping[str, Any]:
    try:
        found = await answer.json(content_type=None)
    except ValueError as error:
        raise UpstreamAway(f"{answer.url} does not answer in JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def _error(said: Mapping[str, Any]) -> str:
    error = said.get("error", "the upstream refused to render the prompt")
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
