"""One prompt, answered twice by a loaded model, plain and with guesses, and the ids compared.

The answers come one after the other: side by side they would take each other's time. Nothing of them is kept.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pilotfish.daemon.control.governor import ConnectedRunner
from pilotfish.daemon.http.client_program import HEADER
from pilotfish.hooks.errors import RequestError, WorldError

SIDES = {"plain": False, "guessed": True}  # and whether it speculates
MOST_TOKENS = 512
LONGEST = 20_000  # characters of a prompt
_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=5)
_MAX_LINE = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class PlaygroundTrial:
    """What is asked: at most so many tokens, greedy."""

    runner: ConnectedRunner
    prompt: str
    tokens: int

    @classmethod
    def from_json(cls, body: Mapping[str, Any], runners: Mapping[str, ConnectedRunner]) -> PlaygroundTrial:
        """Raises RequestError in the words of the field at fault."""
        runner, prompt, tokens = body.get("runner"), body.get("prompt"), body.get("tokens", 96)
        if not isinstance(runner, str) or runner not in runners:
            raise RequestError("runner: that model is not loaded any more; ask it something and try again")
        if not isinstance(prompt, str) or not 0 < len(prompt) <= LONGEST:
            raise RequestError(f"prompt: expected a text of 1 to {LONGEST} characters")
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MOST_TOKENS:
            raise RequestError(f"tokens: expected 1 to {MOST_TOKENS}")
        return cls(runners[runner], prompt, tokens)


@dataclass(slots=True)
class _Side:
    name: str
    ids: list[int] = field(default_factory=list)
    rate: float | None = None


async def compare(trial: PlaygroundTrial) -> AsyncGenerator[dict[str, Any], None]:
    """`{"side", "text", "drafted"}` for each piece, `{"side", "done"}` where an answer ends, and `{"equal", ...}`.

    Raises WorldError with the runner's words.
    """
    sides = [_Side(name) for name in SIDES]
    base = f"http://127.0.0.1:{trial.runner.registration.port}"
    headers = {HEADER: "the page's playground"}
    async with aiohttp.ClientSession(base, timeout=_PATIENCE, headers=headers, read_bufsize=_MAX_LINE) as session:
        try:
            prompt = await _rendered(session, trial.prompt)
            for side in sides:
                async for piece in _answer(session, prompt, trial.tokens, side):
                    yield piece
        except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:  # or not in this way
            raise WorldError(f"the runner does not answer: {error or type(error).__name__}; try again") from error
    plain, guessed = sides
    yield {"equal": plain.ids == guessed.ids, "tokens": len(guessed.ids), "plain": plain.rate, "guessed": guessed.rate}


async def _rendered(session: aiohttp.ClientSession, text: str) -> str:
    """The prompt as the model's chat template has it; the text itself for a model without one."""
    async with session.post("/apply-template", json={"messages": [{"role": "user", "content": text}]}) as response:
        found = await response.json(content_type=None)
        return str(found["prompt"]) if response.status == 200 and "prompt" in found else text


async def _answer(
    session: aiohttp.ClientSession, prompt: str, tokens: int, side: _Side
) -> AsyncIterator[dict[str, Any]]:
    body = {
        "prompt": prompt,
        "n_predict": tokens,
        "temperature": 0,
        "stream": True,
        "cache_prompt": False,
        "return_drafted": True,
        "speculate": SIDES[side.name],
    }
    async with session.post("/completion", json=body) as response:
        if response.status != 200:
            raise WorldError(f"the runner refuses: {_words(await response.text())}")
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise WorldError(f"the runner fails: {_words(json.dumps(event))}")
            side.ids += event["tokens"]
            if event["content"]:
                yield {"side": side.name, "text": event["content"], "drafted": bool(event.get("drafted"))}
            if event["stop"]:
                side.rate = event["timings"]["predicted_per_second"] or None
                yield {"side": side.name, "done": {"tokens": len(side.ids), "rate": side.rate}}


def _words(text: str) -> str:
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return text[:200]
