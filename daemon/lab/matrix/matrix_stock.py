"""What a stock llama-server does with a model, in a few words."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab.bench_starting import started
from pilotfish.hooks.errors import PilotfishError

_CONTEXT = 512
_SHARED, _OWN = 200, 24  # ids
_ANSWER = 8


def ask_stock(server: Path, model: Path) -> str:
    """Whether it loads, what it keeps of a prompt, and what it does at the context's end. Raises nothing."""
    try:
        return asyncio.run(_asked(server, model))
    except PilotfishError as error:
        return f"fails: {str(error)[:200]}"


async def _asked(server: Path, model: Path) -> str:
    command = partial(_command, server, model)
    async with new_session(reuse=False) as session, started(command, "llama-server", session) as process:
        client = process.client
        ids = (await client.tokenize("The quick brown fox jumps over the lazy dog. " * 60))[: _SHARED + _OWN]
        await _answer(client, ids, _ANSWER)
        second = await _answer(client, [*ids[:_SHARED], *reversed(ids[_SHARED:])], _ANSWER)
        words = f"loads, keeps {second.get('timings', {}).get('cache_n', 0)} of {_SHARED}"
        try:
            last = await _answer(client, ids, _CONTEXT + 64)
        except PilotfishError as error:
            return f"{words}; a full context fails: {str(error)[:100]}"
        beyond = len(ids) + int(last.get("tokens_predicted", 0)) > _CONTEXT
        return f"{words}; a full context {'shifts' if beyond else 'ends the answer'}"


async def _answer(client: RunnerClient, ids: list[int], n: int) -> dict[str, Any]:
    """The last event of a greedy answer."""
    body = {"prompt": ids, "n_predict": n, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
    last: dict[str, Any] = {}
    async for event in client.completion(body):
        last = event
    return last


def _command(server: Path, model: Path, port: int) -> list[str]:
    words = [str(server), "--model", str(model), "--host", "127.0.0.1", "--port", str(port), "-c", str(_CONTEXT)]
    return [*words, "-np", "1", "--context-shift", "--no-webui", "--offline"]
