"""Starting a server that loads a model, for as long as it is asked; how long that took, and the memory it holds."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from pilotfish.daemon.front.runner_client import RunnerClient
from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.errors import EngineError

_HIGH_WATER = re.compile(r"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_SILENCE = 300.0  # seconds without a word after which loading is given up


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Bytes of a process and its children: resident now, and the sum of the most that each held at any time.

    Weights that are mapped from a file count as far as they were read. `peak` is None where the platform does not tell.
    """

    resident: int
    peak: int | None


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that is up. `load_seconds` is from its start until it said so."""

    client: RunnerClient
    pid: int
    load_seconds: float

    def memory(self) -> HeldMemory | None:
        """What it holds now; None when it has ended."""
        try:
            process = psutil.Process(self.pid)
            family = [process, *process.children(recursive=True)]
            peaks = [_peak(member) for member in family]
            known = [peak for peak in peaks if peak is not None]
            resident = sum(member.memory_info().rss for member in family)
        except (psutil.Error, OSError):
            return None
        return HeldMemory(resident, sum(known) if len(known) == len(peaks) else None)


def _peak(process: psutil.Process) -> int | None:
    status = Path(f"/proc/{process.pid}/status")
    found = _HIGH_WATER.search(status.read_text()) if status.is_file() else None
    return int(found[1]) * 1024 if found else None


@contextlib.asynccontextmanager
async def started(
    command: Callable[[int], Sequence[str]], name: str, session: aiohttp.ClientSession
) -> AsyncIterator[StartedServer]:
    """The server that `command` starts on the port it is given, loaded, and ended with the block.

    Raises EngineError, with the server's last words, when it does not come up.
    """
    port = free_port()
    began = time.monotonic()
    try:
        process = await ChildServer.start(command(port), port, "benched server")
    except OSError as error:
        raise EngineError(f"{name} cannot be started: {error}") from error
    try:
        client = RunnerClient(session, port)
        await _until_healthy(client, process, name)
        yield StartedServer(client, process.pid, time.monotonic() - began)
    finally:
        await process.stop()


async def _until_healthy(client: RunnerClient, process: ChildServer, name: str) -> None:
    if await process.comes_up(client.healthy, _SILENCE):
        return
    if not process.alive:
        raise EngineError(f"{name} ended while loading its model: {await process.last_words()}")
    raise EngineError(f"{name} has said nothing for {_SILENCE:.0f} s while loading; is the model too large?")
