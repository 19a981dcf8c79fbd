"""The text of an answer while it comes in, read by a parser that never looks further than it can see.

A parser is a generator: it reads by `yield from`, and is suspended wherever what has come so far does not decide. So
the events are the same however the text is cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from pilotfish.daemon.chat.answers.answer_events import AnswerEvent, Content, Reasoning

_T = TypeVar("_T")
Steps = Generator[None, None, _T]  # suspended until there is more text, or an end
TextEvent = type[Content] | type[Reasoning]

PIECE = 1024  # characters that are read at a time: what is left to read is copied with every step
WHITESPACE = " \t\r\n"


class IncomingText:
    """What has come and is not read yet. Positions count from the beginning of `rest`."""

    def __init__(self) -> None:
        self.rest = ""
        self.ended = False
        self.events: list[AnswerEvent] = []

    def emit(self, event: AnswerEvent) -> None:
        """Tell an event."""
        self.events.append(event)

    def emit_text(self, kind: TextEvent, text: str) -> None:
        """Tell a piece of text, if there is any."""
        if text:
            self.events.append(kind(text))

    def take(self, length: int) -> str:
        """Read that many characters, which are there."""
        taken, self.rest = self.rest[:length], self.rest[length:]
        return taken

    def give_up_at_the_end(self) -> None:
        """Tell the rest as content if the text has ended: what waited for an end that does not come is no call.

        Another look at every marker in the rest would take time with the square of its length.
        """
        if self.ended:
            self.emit_text(Content, self.take(len(self.rest)))

    def until(self, length: int) -> Steps[bool]:
        """Wait for that many characters; False if the text ends before."""
        while len(self.rest) < length:
            if self.ended:
                return False
            yield
        return True

    def at(self, position: int) -> Steps[str]:
        """The character there; empty where the text has ended."""
        there = yield from self.until(position + 1)
        return self.rest[position] if there else ""

    def starts_with(self, *words: str, position: int = 0) -> Steps[str]:
        """The longest of `words` that stands at `position`; empty if none does."""
        for word in sorted(words, key=len, reverse=True):
            length = 0
            while length < len(word) and (yield from self.at(position + length)) == word[length]:
                length += 1
            if length == len(word):
                return word
        return ""

    def find(self, start: int, *words: str) -> Steps[int]:
        """The position of the first of `words` from `start` on; that of the text's end if none comes."""
        longest, searched = max(map(len, words)), start
        while not (found := [at for word in words if (at := self.rest.find(word, searched)) >= 0]):
            if self.ended:
                return len(self.rest)
            searched = max(start, len(self.rest) - longest + 1)
            yield
        return min(found)

    def past_space(self, position: int = 0) -> Steps[int]:
        """The position of the next character that is no whitespace."""
        while (character := (yield from self.at(position))) and character in WHITESPACE:
            position += 1
        return position

    def pass_until(self, markers: Sequence[str], kind: TextEvent) -> Steps[str]:
        """Tell the text before the first of `markers` and read that too; empty if none comes.

        Where two begin at one place, the longer one counts.
        """
        while True:
            found = [(at, -len(marker), marker) for marker in markers if (at := self.rest.find(marker)) >= 0]
            open_at = len(self.rest) if self.ended else _open_at(self.rest, markers)
            if found and min(found)[0] < open_at:
                at, _, marker = min(found)
                self.emit_text(kind, self.take(at))
                return self.take(len(marker))
            self.emit_text(kind, self.take(open_at))
            if self.ended:
                return ""
            yield


def _open_at(text: str, markers: Sequence[str]) -> int:
    """Where a marker may have begun that is not whole yet."""
    longest = max(map(len, markers), default=0)
    for at in range(max(0, len(text) - longest + 1), len(text)):
        if any(len(text) - at < len(marker) and marker.startswith(text[at:]) for marker in markers):
            return at
    return len(text)


class AnswerParser:
    """Feeds a parser. `read` is called once, with the text that it reads from."""

    def __init__(self, read: Callable[[IncomingText], Steps[None]]) -> None:
        self._incoming = IncomingText()
        self._steps = read(self._incoming)
        self._done = False

    def feed(self, text: str) -> list[AnswerEvent]:
        """What is certain after this piece of text."""
        told = []
        for start in range(0, len(text), PIECE):
            self._incoming.rest += text[start : start + PIECE]
            told += self._go_on()
        return told

    def finish(self) -> list[AnswerEvent]:
        """The answer ended here."""
        self._incoming.ended = True
        return self._go_on()

    def _go_on(self) -> list[AnswerEvent]:
        if not self._done:
            self._done = next(self._steps, self) is self
        told, self._incoming.events = self._incoming.events, []
        return told
