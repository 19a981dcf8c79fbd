"""What a child process said last and how it ended: the pieces of an error message that names the reason."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger("pilotfish.processes")

LAST_LINES = 8
LONGEST_LINE = 1 << 16  # bytes; of a line without an end only the last are kept
_SHOWN = 500  # characters of a line


def how_it_ended(code: int | None, exited: str = "ended with code") -> str:
    """`code` as Popen's returncode: "ended with code 3", "ended by signal 9", or "is still running"."""
    if code is None:
        return "is still running"
    return f"ended by signal {-code}" if code < 0 else f"{exited} {code}"


class LastWords:
    """The last lines of a process's output, heard as it comes: of bounded size, whatever bytes it is.

    One thread hears; any may read the lines.
    """

    def __init__(self, who: str, is_message: Callable[[str], bool] = lambda line: False) -> None:
        """`is_message` is shown every line; one that it takes as meant for this process is none of the last words."""
        self._who = who
        self._is_message = is_message
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._partial = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last ones that are not empty, oldest first."""
        return tuple(self._lines)

    def hear(self, data: bytes) -> None:
        """Take the next bytes of the output."""
        *lines, partial = (self._partial + data).split(b"\n")
        self._partial = partial[-LONGEST_LINE:]
        for line in lines:
            self._note(line)

    def end(self) -> None:
        """The output has ended, perhaps in the middle of a line."""
        self._note(self._partial)
        self._partial = b""

    def _note(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text and not self._is_message(text):
            self._lines.append(text[-_SHOWN:])
            log.debug("%s: %s", self._who, text)
