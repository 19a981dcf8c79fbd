"""How far a JSON value goes in a text that is still coming in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pilotfish.daemon.chat.answers.incoming_text import WHITESPACE, IncomingText, Steps

_CLOSES = {"{": "}", "[": "]"}
_ELSEWHERE = frozenset("0123456789+-.eEtrufalsn:," + WHITESPACE)  # what may stand outside of strings
_SCALAR = _ELSEWHERE - frozenset(":," + WHITESPACE)
MAX_DEPTH = 100


class JsonExtent:
    """Follows one object, array or string. It looks at brackets and strings, so what it lets pass may be no JSON."""

    def __init__(self) -> None:
        self.done = False  # the last character was the value's last
        self.broken = False  # the next character cannot belong to it
        self._open: list[str] = []
        self._in_string = self._escaped = False

    def advance(self, text: str) -> int:
        """How many characters of `text` belong to the value."""
        for position, character in enumerate(text):
            if self.done:
                return position
            self._take(character)
            if self.broken:
                return position
        return len(text)

    def _take(self, character: str) -> None:
        if self._in_string:
            if not self._escaped and character == '"':
                self._in_string = False
                self.done = not self._open
            self._escaped = character == "\\" and not self._escaped
        elif character == '"':
            self._in_string = True
        elif character in _CLOSES and len(self._open) < MAX_DEPTH:
            self._open.append(_CLOSES[character])
        elif self._open and character == self._open[-1]:
            self._open.pop()
            self.done = not self._open
        else:
            self.broken = not self._open or character not in _ELSEWHERE


def pass_json(incoming: IncomingText, tell: Callable[[str], None]) -> Steps[bool]:
    """Read the value that begins here and tell it as it comes; False if it broke off."""
    extent = JsonExtent()
    while not (extent.done or extent.broken):
        if not incoming.rest:
            if incoming.ended:
                return False
            yield
        elif taken := incoming.take(extent.advance(incoming.rest)):
            tell(taken)
    return extent.done


def json_end(incoming: IncomingText, position: int) -> Steps[int]:
    """The position behind the value that begins at `position`; -1 if there is none, or no end of it."""
    if (yield from incoming.at(position)) not in ("{", "[", '"'):
        return (yield from _scalar_end(incoming, position))
    extent = JsonExtent()
    while not (extent.done or extent.broken):
        if position == len(incoming.rest):
            if incoming.ended:
                return -1
            yield
        position += extent.advance(incoming.rest[position:])
    return position if extent.done else -1


def _scalar_end(incoming: IncomingText, position: int) -> Steps[int]:
    start = position
    while (character := (yield from incoming.at(position))) in _SCALAR:
        position += 1
    return position if position > start and character else -1


def value_of(text: str) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
