"""Waiting for a server that loads a model."""

from __future__ import annotations

import asyncio
import time

from pilotfish.daemon.front.runner_client import RunnerClient
from pilotfish.daemon.front.runner_process import RunnerProcess
from pilotfish.hooks.errors import EngineError

_POLL = 0.1  # seconds
_SILENCE = 300.0  # seconds without a word after which loading is given up


async def until_healthy(client: RunnerClient, process: RunnerProcess, name: str) -> None:
    """Return once the model is loaded. Raises EngineError, with the server's last words, when that will not happen."""
    while not await client.healthy():
        if process.exit_code is not None:
            raise EngineError(f"{name} ended while loading its model: {await process.last_words()}")
        if time.monotonic() - process.last_sign_of_life > _SILENCE:
            raise EngineError(f"{name} has said nothing for {_SILENCE:.0f} s while loading; is the model too large?")
        await asyncio.sleep(_POLL)
