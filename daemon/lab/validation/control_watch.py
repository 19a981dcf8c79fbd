"""What serves the model behind an Ollama's API: its own llama-server, or a runner of pilotfish's, and what that says.

Ollama's API does not tell. Its processes do, where they run on this machine and may be looked at: whoever listens at
the URL starts one process for each model, with the weights and a port on its command line, and a runner of pilotfish's
describes itself there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil

from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab.receipts.receipt_types import ControlRecord, ServedBy
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import TargetPin

UNSEEN = "what serves the model there cannot be seen from here"
_SECONDS = 5.0  # that a look may wait for an answer


@dataclass(slots=True)
class ControlWatch:
    """`look` after every answer of a control; the first of them was its cold one."""

    _first: dict[str, ControlRecord] = field(default_factory=dict)  # by URL
    _last: dict[str, ControlRecord] = field(default_factory=dict)

    def look(self, url: str, pin: TargetPin) -> None:
        """Ask whoever serves the model at `url` how things stand. Blocks for some milliseconds; raises nothing."""
        self._last[url] = asyncio.run(seen(url, [weight.digest for weight in pin.weights]))
        self._first.setdefault(url, self._last[url])

    def records(self, urls: Sequence[str]) -> tuple[ControlRecord, ...]:
        """What became of each; a model that was loaded anew meanwhile has counted from 0 again."""
        return tuple(self._record(url) for url in urls)

    def _record(self, url: str) -> ControlRecord:
        first, last = self._first.get(url), self._last.get(url)
        if first is None or last is None:
            return ControlRecord(url, "", about="it was not asked")
        return replace(
            last, drafted=_since(first.drafted, last.drafted), accepted=_since(first.accepted, last.accepted)
        )


async def seen(url: str, weights: Sequence[str]) -> ControlRecord:
    """The Ollama at `url` and the process that serves `weights` (digests) there; its counts since it was loaded."""
    record = ControlRecord(url, await _version(url))
    try:
        port = model_port(url, weights)
        if port is None:
            return replace(record, about=UNSEEN)
        async with asyncio.timeout(_SECONDS), new_session() as session:
            return _described(record, await RunnerClient(session, port).explain())
    except PilotfishError:  # it answers, and knows nothing of pilotfish
        return replace(record, served_by=ServedBy.STOCK)
    except (OSError, TimeoutError, psutil.Error, ValueError, KeyError, TypeError) as error:
        return replace(record, about=f"{UNSEEN} ({type(error).__name__})")


def model_port(url: str, weights: Sequence[str]) -> int | None:
    """Where the process listens that serves weights of these digests for the Ollama at `url`.

    None where no such process can be seen. Raises OSError and psutil.Error.
    """
    for process in _listeners(url):
        for child in process.children():
            with contextlib.suppress(psutil.Error, ValueError, IndexError):
                words = child.cmdline()
                model = words[words.index("--model") + 1]
                if any(digest.replace(":", "-") in model for digest in weights):
                    return int(words[words.index("--port") + 1])
    return None


def _listeners(url: str) -> Iterator[psutil.Process]:
    """The processes of this machine that listen at `url` and may be looked at."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not _is_here(parts.hostname or ""):
        return
    for connection in psutil.net_connections("tcp"):
        listens = connection.status == psutil.CONN_LISTEN and getattr(connection.laddr, "port", None) == port
        if listens and connection.pid:
            yield psutil.Process(connection.pid)


def _is_here(host: str) -> bool:
    address = socket.gethostbyname(host)
    mine = {one.address for each in psutil.net_if_addrs().values() for one in each}
    return ipaddress.ip_address(address).is_loopback or address in mine


async def _version(url: str) -> str:
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}/api/version") as got,
        ):
            return str((await got.json(content_type=None))["version"])
    return ""


def _described(record: ControlRecord, found: dict[str, Any]) -> ControlRecord:
    lane, totals = found["lane"], found["totals"]
    return replace(
        record,
        served_by=ServedBy.PILOTFISH,
        lane=str(lane["name"]),
        parity=str(lane["parity"]),
        widths=tuple(map(int, lane["widths"])),
        drafted=int(totals["drafted"]),
        accepted=int(totals["accepted"]),
        about=str(found["reason"]),
    )


def _since(first: int | None, last: int | None) -> int | None:
    if first is None or last is None:
        return last
    return last - first if last >= first else last
