"""Starting a server that loads a model, for as long as it is asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import aiohttp

from pilotfish.daemon.front.runner_client import RunnerClient
from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.errors import EngineError

_SILENCE = 300.0  # seconds without a word after which loading is given up


@contextlib.asynccontextmanager
async def started(
    command: Callable[[int], Sequence[str]], name: str, session: aiohttp.ClientSession
) -> AsyncIterator[RunnerClient]:
    """A client of the server that `command` starts on the port it is given, loaded, and ended with the block.

    Raises EngineError, with the server's last words, when it does not come up.
    """
    port = free_port()
    try:
        process = await ChildServer.start(command(port), port, "benched server")
    except OSError as error:
        raise EngineError(f"{name} cannot be started: {error}") from error
    try:
        client = RunnerClient(session, port)
        await _until_healthy(client, process, name)
        yield client
    finally:
        await process.stop()


async def _until_healthy(client: RunnerClient, process: ChildServer, name: str) -> None:
    if await process.comes_up(client.healthy, _SILENCE):
        return
    if not process.alive:
        raise EngineError(f"{name} ended while loading its model: {await process.last_words()}")
    raise EngineError(f"{name} has said nothing for {_SILENCE:.0f} s while loading; is the model too large?")
