"""What the shim decided, one JSON object a line, in a file that stays small: `pilotfish status` shows it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pilotfish.manifests.remembered import write_atomically

FILE_NAME = "decisions.jsonl"
MAX_BYTES = 64 << 10  # beyond that the older half goes
KEPT = 100  # lines
_TAIL = 4 * MAX_BYTES  # what is looked at of a file that somebody else made larger


@dataclass(frozen=True, slots=True)
class Logged:
    """One decision. `decision` is `runner` or `stock`, `time` seconds since the epoch."""

    time: float
    model: str
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class OnStock:
    """A model whose last launch went to the stock server; `since` (Unix time) is when its reason began."""

    model: str
    reason: str
    since: float


def record(state_dir: Path, model: str, decision: str, reason: str) -> None:
    """Append a decision. Two processes that write at once may lose an old line, never a half one.

    Raises OSError when the folder cannot be written.
    """
    path = state_dir / FILE_NAME
    state_dir.mkdir(parents=True, exist_ok=True)
    line = json.dumps(asdict(Logged(round(time.time(), 3), model, decision, reason))) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line.encode())
        size = os.fstat(handle).st_size
    finally:
        os.close(handle)
    if size > MAX_BYTES:
        write_atomically(path, b"".join(path.read_bytes().splitlines(keepends=True)[-KEPT:]))


def read(state_dir: Path) -> list[Logged]:
    """The decisions that are remembered, oldest first. Lines that make no sense are left out."""
    try:
        with (state_dir / FILE_NAME).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return []
    return [entry for line in lines if (entry := _parsed(line)) is not None]


def on_stock(decisions: Iterable[Logged]) -> list[OnStock]:
    """By name, after `decisions`, oldest first."""
    standing: dict[str, OnStock] = {}
    for decision in decisions:
        model, reason = decision.model, decision.reason
        if decision.decision != "stock":
            standing.pop(model, None)
        elif model not in standing or standing[model].reason != reason:
            standing[model] = OnStock(model, reason, decision.time)
    return [entry for _, entry in sorted(standing.items())]


def _parsed(line: bytes) -> Logged | None:
    try:
        table = json.loads(line)
        return Logged(float(table["time"]), *(str(table[field.name]) for field in fields(Logged)[1:]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
