"""A log that others can write to, kept short."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from aiohttp.http import HttpProcessingError

_REPEATED = re.compile(r"[:\n]|(?<=line) ")  # what aiohttp repeats of a request follows: it may be a prompt


class Sparing(logging.Filter):
    """Lets one record through in every `seconds`, with the number of those that it kept back since the last.

    Errors with a traceback always pass: those are ours. What aiohttp says of a request that is no HTTP is the peer's.
    """

    def __init__(self, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")
        self._kept_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written; changes its text to say what was not."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, HttpProcessingError):
            return True
        if self._clock() < self._next:
            self._kept_back += 1
            return False
        self._shorten(record, error)
        self._next = self._clock() + self._seconds
        self._kept_back = 0
        return True

    def _shorten(self, record: logging.LogRecord, error: BaseException | None) -> None:
        more = f" (and {self._kept_back} more)" if self._kept_back else ""
        why = f": {_REPEATED.split(str(getattr(error, 'message', '')), maxsplit=1)[0]}" if error else ""
        record.msg, record.args = f"{record.getMessage()}{why}{more}", None
        record.exc_info = None
