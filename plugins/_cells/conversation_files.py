"""Conversations as files: what a sequence's cells held, for later loads of the same model, build and setting.

    mark | digest | length of the head | head (JSON) | ids (int32) | the sequence's state

The digest is over all that follows it, and is compared before a state is handed to the library, which may end the
process over bytes that it did not write. Numbers are in this machine's order; the identity in the head says whose files
these are, and includes whatever decides what the bytes mean. Nothing is read of a state before somebody wants it.

All models share the folder, and its bytes are bounded: what was used least recently goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import struct
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory
from pilotfish.plugins._cells.context import CellState

log = logging.getLogger("pilotfish.verifiers")

ENDING = ".cells"
_MARK = b"pilotfish cells\n"
_DIGEST = 32  # bytes
_LENGTH = struct.Struct("=I")
_LONGEST_HEAD = 1 << 20  # bytes
_UNFINISHED = ".unfinished-"
_ABANDONED = 3600.0  # seconds, after which nobody is writing an unfinished file any more


class UnreadableFile(Exception):
    """Not a file that was written here, or no longer as it was written."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptFile:
    """One conversation on disk; `size` is in bytes."""

    path: Path
    history: CellHistory
    cells: int
    size: int


class ConversationFiles:
    """The files in `folder` that are of `identity`, together with all others not more than `limit` bytes.

    `block`, `any_prefix`, `memory` and `margin` are those of every `CellHistory` here. Used by one thread at a time.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        limit: int,
        *,
        block: int,
        any_prefix: bool,
        memory: CellMemory = CELLS,
        margin: int = 0,
    ) -> None:
        self.limit = limit
        self._folder, self._identity, self._block, self._any_prefix = folder, identity, block, any_prefix
        self._memory, self._margin = memory, margin
        self._own = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()

    def found(self) -> list[KeptFile]:
        """What is there, the least recently used first. What cannot be read costs a line in the log, and is removed."""
        self._remove_abandoned()
        self._make_room(0)
        kept = []
        for path in _by_age(self._folder.glob(f"{self._own}-*{ENDING}")):
            try:
                kept.append(self._opened(path))
            except (OSError, UnreadableFile) as error:
                self._give_up(path, error)
        return kept

    def write(self, history: CellHistory, state: CellState) -> KeptFile:
        """Keep one. Raises OSError, or UnreadableFile for one that has no room here."""
        ids = np.asarray(history.tokens, dtype=np.int32)
        head = json.dumps({"identity": self._identity, "cells": state.cells, "ids": len(ids), "blocks": history.blocks})
        parts: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head.encode(), ids.tobytes(), state.data.data]
        size = len(_MARK) + _DIGEST + sum(len(part) for part in parts)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if size > self.limit or 2 * size > shutil.disk_usage(self._folder).free:
            raise UnreadableFile(f"{size >> 20} MiB have no room in {self._folder}")
        self._make_room(size)
        path = self._folder / f"{self._own}-{hashlib.blake2b(ids.tobytes(), digest_size=8).hexdigest()}{ENDING}"
        self._replace(path, [_MARK, _digest_of(parts), *parts])
        return KeptFile(path, history, state.cells, size)

    def read(self, kept: KeptFile) -> CellState:
        """Its cells. Raises OSError, or UnreadableFile when it is not what was found."""
        with kept.path.open("rb") as file:
            again = self._opened_from(kept.path, file)
            file.seek(len(_MARK))
            digest = file.read(_DIGEST)
            rest = np.fromfile(file, dtype=np.uint8)
        if _digest_of([rest.data]) != digest:
            raise UnreadableFile("its bytes are not those that were written")
        if again.history.tokens != kept.history.tokens:
            raise UnreadableFile("it holds another conversation by now")
        start = _LENGTH.size + _LENGTH.unpack(rest[: _LENGTH.size].tobytes())[0] + 4 * len(kept.history)
        return CellState(again.cells, rest[start:])

    def used(self, kept: KeptFile) -> None:
        """It is the most recently used one."""
        with contextlib.suppress(OSError):
            os.utime(kept.path)

    def remove(self, kept: KeptFile) -> None:
        with contextlib.suppress(OSError):
            kept.path.unlink()

    def _opened(self, path: Path) -> KeptFile:
        with path.open("rb") as file:
            return self._opened_from(path, file)

    def _opened_from(self, path: Path, file: BinaryIO) -> KeptFile:
        """What its head says; that is not proven before the digest is."""
        if file.read(len(_MARK)) != _MARK:
            raise UnreadableFile("it does not begin as one that was written here")
        file.seek(_DIGEST, os.SEEK_CUR)
        (length,) = _LENGTH.unpack(_all(file, _LENGTH.size))
        if length > _LONGEST_HEAD:
            raise UnreadableFile("its head is too long")
        try:
            head = json.loads(_all(file, length))
            identity, cells, ids = head["identity"], int(head["cells"]), int(head["ids"])
            blocks = [(int(start), int(end)) for start, end in head["blocks"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableFile("its head makes no sense") from error
        if identity != self._identity or not 0 < ids == cells:
            raise UnreadableFile("it is of another model, build or setting")
        tokens = array("i")
        tokens.frombytes(_all(file, 4 * ids))
        size = os.fstat(file.fileno()).st_size
        history = CellHistory.of(
            tokens,
            blocks,
            self._block,
            any_prefix=self._any_prefix,
            memory=self._memory,
            margin=self._margin,
        )
        return KeptFile(path, history, cells, size)

    def _replace(self, path: Path, parts: Sequence[bytes | memoryview]) -> None:
        """Whole or not at all. What a power cut leaves of it, the digest finds."""
        handle, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._folder)  # for nobody else to read
        try:
            with os.fdopen(handle, "wb") as file:
                for part in parts:
                    file.write(part)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    def _make_room(self, size: int) -> None:
        """Remove the least recently used of any model until `size` bytes more fit."""
        sizes = {path: _size(path) for path in _by_age(self._folder.glob(f"*{ENDING}"))}
        held = sum(sizes.values())
        for path, its_size in sizes.items():
            if held + size <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            held -= its_size

    def _remove_abandoned(self) -> None:
        for path in self._folder.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()

    def _give_up(self, path: Path, error: Exception) -> None:
        log.warning("%s is not used, and removed: %s", path, error)
        with contextlib.suppress(OSError):
            path.unlink()


def _by_age(paths: Iterator[Path]) -> list[Path]:
    def used(path: Path) -> float:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
        return 0.0

    return sorted(paths, key=used)


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _all(file: BinaryIO, size: int) -> bytes:
    if len(data := file.read(size)) < size:
        raise UnreadableFile("it ends too early")
    return data


def _digest_of(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()
