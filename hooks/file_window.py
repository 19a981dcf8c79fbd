"""A file's bytes by offset, for readers that walk a header of unknown length.

A memory map would do, until somebody truncates the file while it is read: touching a page that is gone kills the
process with SIGBUS, which nothing can catch. Here that is a ValueError.
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO

WINDOW_BYTES = 256 << 10
_LENGTH = struct.Struct("<Q")


class FileWindow:
    """Reads of an open file, little-endian, through a window that moves forward. `size` is in bytes, as the file had
    it when it was opened.

    Every method raises ValueError for what lies beyond the end of the file, also where the file has become shorter,
    and OSError when the file cannot be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self.size = os.fstat(self._descriptor).st_size
        self._start = 0
        self._bytes = b""

    def read(self, at: int, length: int) -> bytes:
        """The `length` bytes from `at` on."""
        if not self._start <= at <= at + length <= self._start + len(self._bytes):
            self._move(at, length)
        return self._bytes[at - self._start : at - self._start + length]

    def unpack(self, codes: str, at: int) -> tuple[Any, ...]:
        """Numbers by `struct`'s codes, with no padding between them."""
        try:
            length = struct.calcsize(f"<{codes}")
        except struct.error as error:  # more numbers than any file has bytes
            raise ValueError(f"{codes[:40]}: {error}") from error
        return struct.unpack(f"<{codes}", self.read(at, length))

    def after_strings(self, at: int, count: int) -> int:
        """Where `count` strings end that begin at `at`, each led by its length as a uint64."""
        if count * _LENGTH.size > self.size - at:
            raise ValueError(f"an array of {count} strings does not fit in the file")
        unpack, data, start, last = _LENGTH.unpack_from, b"", 0, -1
        for index in range(count):  # a vocabulary has up to 300,000 entries: nothing else is done per entry
            if at > last:
                if at + _LENGTH.size > self.size:
                    raise ValueError(f"the file ends before string {index} of {count}")
                self._move(at, _LENGTH.size)
                data, start = self._bytes, at
                last = start + len(data) - _LENGTH.size
            at += _LENGTH.size + unpack(data, at - start)[0]
        if at > self.size:
            raise ValueError(f"the last of {count} strings does not fit in the file")
        return at

    def _move(self, at: int, least: int) -> None:
        """Let the window begin at `at` and hold at least `least` bytes."""
        if at + least > self.size:
            raise ValueError(f"{least} bytes from byte {at} on do not fit in a file of {self.size} bytes")
        self._bytes = os.pread(self._descriptor, max(least, WINDOW_BYTES), at)
        self._start = at
        if len(self._bytes) < least:
            raise ValueError(f"it ended at byte {at + len(self._bytes)} of {self.size} while it was read")
