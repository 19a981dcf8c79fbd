"""From token pieces to text that may be sent: whole characters only, and never a stop string.

Token by token, as llama-server does it: a piece that ends inside a UTF-8 character is held until the character
is whole, and text that could still become a stop string is held until it is decided. What is held when the
budget runs out is sent if it is text, and dropped if it is half a character, streaming or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.daemon.core.stop_words import StopWords


class OutputText:
    """The text of one answer. `text` is all that was let out so far."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stops = StopWords([word.encode() for word in stop if word])
        self._held = b""
        self._looked = 0  # bytes of it in which stop strings were looked for
        self.stopping_word = ""

    def push(self, piece: bytes, *, last: bool = False) -> str:
        """Add one token's bytes; returns what may be sent now. `last` says that nothing will follow.

        When a stop string is complete, `stopping_word` is set and everything from it on is gone for good.
        """
        self._held += piece
        whole = len(self._held) - incomplete_tail(self._held)
        if whole < len(self._held) and not last:
            return ""
        found = self._stops.feed(self._held[self._looked :])
        self._looked = len(self._held)
        if found:
            self.stopping_word = found.word.decode()
            return self._let_out(len(self._held) - found.before)
        return "" if self._stops.undecided and not last else self._let_out(whole)

    def _let_out(self, end: int) -> str:
        text, self._held, self._looked = self._held[:end], b"", 0
        return text.decode("utf-8", errors="replace")


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end are the start of a UTF-8 character that is not whole yet (0 to 3)."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # a leading byte: it says how long its character is
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needed and byte < 0xF8 else 0
        if byte < 0x80:
            return 0
    return 0
