"""Asking an Ollama-compatible server over HTTP, and a front of our own to ask when none runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from pilotfish.hooks.errors import WorldError

MAX_LINE = 8 << 20  # bytes of one NDJSON line


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer as a client sees it. Rates are committed tokens per second of decoding, as Ollama counts them."""

    text: str
    tokens: tuple[int, ...]
    seconds: float  # of decoding
    drafted: int
    accepted: int
    parity: str
    lane: str

    @property
    def rate(self) -> float:
        return len(self.tokens) / self.seconds if self.seconds > 0 else 0.0

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


class Client:
    """A client for the part of Ollama's API that the lab needs. Use it as an async context manager."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5), read_bufsize=MAX_LINE
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._session.close()

    async def alive(self) -> bool:
        """Whether a server answers there."""
        try:
            async with self._session.get(f"{self.url}/api/version", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The NDJSON objects of an answer. Raises WorldError with the server's own words."""
        try:
            async with self._session.post(self.url + path, json=body) as response:
                if response.status >= 400:
                    raise WorldError(_error(await response.text(), response.status))
                async for line in response.content:
                    event = json.loads(line)
                    if "error" in event:
                        raise WorldError(str(event["error"]))
                    yield event
        except aiohttp.ClientError as error:
            raise WorldError(f"{self.url}{path}: {error or type(error).__name__}") from error

    async def ask(self, body: Mapping[str, Any], hear: Callable[[str, int], None] = lambda text, n: None) -> Answered:
        """One `/api/generate` answer in full. The server must be pilotfish's for `tokens` to be filled.

        `hear(text, drafted)` gets each piece as it comes, with how many of its tokens a drafter proposed.
        """
        text, last = "", {}
        options = {**body.get("options", {}), "return_tokens": True}
        async with contextlib.aclosing(self.stream("/api/generate", {**body, "options": options})) as events:
            async for event in events:
                text += (piece := event.get("response", ""))
                hear(piece, event.get("pilotfish", {}).get("drafted", 0))
                last = event
        return _answered(text, last)


def _answered(text: str, last: Mapping[str, Any]) -> Answered:
    figures = last.get("pilotfish", {})
    return Answered(
        text=text,
        tokens=tuple(figures.get("tokens", ())),
        seconds=last.get("eval_duration", 0) / 1e9,
        drafted=figures.get("draft_n", 0),
        accepted=figures.get("draft_n_accepted", 0),
        parity=figures.get("parity", ""),
        lane=figures.get("lane", ""),
    )


def _error(text: str, status: int) -> str:
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return text.strip() or f"the server answered with status {status}"
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
