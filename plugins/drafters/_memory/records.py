"""One request's text as bytes: how the memory is laid out in its files.

A file is a sequence of records, each the header `MAGIC, count, time, crc` and then `count` token ids; everything is
little-endian. The checksum covers count, time and ids, so a record that was cut short by a crash, or whose bytes
rotted, is recognised and passed over, and reading goes on at the next magic.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from dataclasses import dataclass

MAGIC = b"PFM1"
_HEADER = struct.Struct("<4sIdI")  # magic, tokens, seconds since the epoch, CRC-32
_CHECKED = struct.Struct("<Id")
ITEM = 4  # bytes per id


@dataclass(frozen=True, slots=True)
class Passage:
    """What one request left behind: `tokens` in order, and when it ended (seconds since the epoch)."""

    time: float
    tokens: array[int]


@dataclass(frozen=True, slots=True)
class Read:
    """What a file held. `sound` is the length in bytes up to the end of the last whole record.

    `damaged` counts the bytes before that which belong to no whole record. `ours` is False for bytes that do not
    begin as a memory file does.
    """

    passages: tuple[Passage, ...] = ()
    sound: int = 0
    damaged: int = 0
    ours: bool = False


def pack(passage: Passage) -> bytes:
    """The record of a passage."""
    ids = _swapped(passage.tokens).tobytes()
    count = len(passage.tokens)
    return _HEADER.pack(MAGIC, count, passage.time, _checksum(count, passage.time, ids)) + ids


def unpack(data: bytes) -> Read:
    """Every whole record of `data`, whatever stands between them."""
    passages: list[Passage] = []
    at = sound = used = 0
    while (at := data.find(MAGIC, at)) >= 0:
        end, passage = _record(data, at)
        if passage is None:
            at += 1
            continue
        passages.append(passage)
        used += end - at
        at = sound = end
    return Read(tuple(passages), sound, sound - used, data.startswith(MAGIC) or sound > 0)


def _record(data: bytes, at: int) -> tuple[int, Passage | None]:
    start = at + _HEADER.size
    if start > len(data):
        return at, None
    _, count, time, crc = _HEADER.unpack_from(data, at)
    end = start + count * ITEM
    if end > len(data):
        return at, None
    ids = data[start:end]
    if _checksum(count, time, ids) != crc:
        return at, None
    tokens = array("i")
    tokens.frombytes(ids)
    return end, Passage(time, _swapped(tokens))


def _checksum(count: int, time: float, ids: bytes) -> int:
    return zlib.crc32(ids, zlib.crc32(_CHECKED.pack(count, time)))


def _swapped(tokens: array[int]) -> array[int]:
    """The same ids with their bytes in little-endian order, or back."""
    if sys.byteorder == "little":
        return tokens
    tokens = tokens[:]
    tokens.byteswap()
    return tokens
