"""Counting how often a folder is listed, by Python's audit events."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_watched: dict[str, list[str]] = {}


@contextmanager
def scans(folder: Path) -> Iterator[list[str]]:
    """The events that list `folder` while the block lasts."""
    _listen()
    seen = _watched[str(folder)] = []
    try:
        yield seen
    finally:
        del _watched[str(folder)]


@functools.cache
def _listen() -> None:
    """Once: a hook cannot be taken away again."""
    sys.addaudithook(_note)


def _note(event: str, given: tuple[object, ...]) -> None:
    if _watched and event in ("os.scandir", "os.listdir") and str(given[0]) in _watched:
        _watched[str(given[0])].append(event)
