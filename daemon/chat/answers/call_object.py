"""A call as a JSON object: `{"name": ..., "arguments": {...}}` under whatever keys."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.chat.answers.answer_events import CallArguments, CallStart
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import GrammarWriter, literal
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps
from pilotfish.daemon.chat.answers.json_extent import json_end, pass_json, value_of


@dataclass(frozen=True, slots=True)
class CallKeys:
    """Under which keys a call has its parts, in that order, unless `id_first`.

    With an `id`, which may come last, arguments are told when the call is whole.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ()
    id_first: bool = False
    only_these: bool = False  # an object with others is no call

    def knows(self, key: str) -> bool:
        """Whether the key is one of a call."""
        return key in (*self.name, *self.arguments, *self.id, "type", "function")


def read_call(incoming: IncomingText, keys: CallKeys, names: Container[str], index: int) -> Steps[bool]:
    """Read an object that calls one of `names`. False if it is none; then nothing of it was read."""
    return (yield from _CallReader(incoming, keys, names, index).read())


def call_body(writer: GrammarWriter, keys: CallKeys, tool: Tool, number: int) -> str:
    """GBNF for an object that calls `tool`, behind its first brace."""
    name = f"{_key(keys.name[0])} {literal(json.dumps(tool.name, ensure_ascii=False))}"
    arguments = f"{_key(keys.arguments[0])} {writer.arguments(tool, number)}"
    if not keys.id:
        return f'space {name} space "," space {arguments} space "}}"'
    id = f"{_key(keys.id[0])} {writer.json_text()}"
    if keys.id_first:
        return f'space ({id} space "," space)? {name} space "," space {arguments} space "}}"'
    return f'space {name} space "," space {arguments} space "," space {id} space "}}"'


def _key(name: str) -> str:
    return f'{literal(json.dumps(name))} space ":" space'


class _CallReader:
    """One attempt. Until the call is told, all of it stays unread and `_position` runs ahead."""

    def __init__(self, incoming: IncomingText, keys: CallKeys, names: Container[str], index: int) -> None:
        self._incoming, self._keys, self._names, self._index = incoming, keys, names, index
        self._position = self._depth = 0
        self._name = self._id = self._arguments = ""
        self._told = False

    def read(self) -> Steps[bool]:
        if not (yield from self._next("{")):
            return False
        self._depth = 1
        while self._depth:
            if not (yield from self._member()):
                return self._told
        if not self._name:
            return False
        if not self._told:
            self._incoming.emit(CallStart(self._index, self._name, self._id))
            self._incoming.emit(CallArguments(self._index, self._arguments or "{}"))
        self._incoming.take(self._position)
        return True

    def _next(self, wanted: str) -> Steps[bool]:
        """Whether `wanted` comes next, which then lies behind."""
        position = yield from self._incoming.past_space(self._position)
        if (yield from self._incoming.at(position)) != wanted:
            return False
        self._position = position + 1
        return True

    def _member(self) -> Steps[bool]:
        if (yield from self._next("}")):
            self._depth -= 1
            return True
        if (yield from self._next(",")):
            return True
        key = yield from self._value()
        if not isinstance(key, str) or not (yield from self._next(":")):
            return False
        if self._keys.only_these and not self._keys.knows(key):
            return False
        self._position = yield from self._incoming.past_space(self._position)
        opens = (yield from self._incoming.at(self._position)) == "{"
        if key == "function" and opens:
            self._depth += 1
            self._position += 1
            return True
        if key in self._keys.arguments and opens and self._name and not self._keys.id:
            return (yield from self._tell())
        start = self._position
        value = yield from self._value()
        return self._position > start and self._keep(key, value, self._incoming.rest[start : self._position])

    def _value(self) -> Steps[Any]:
        """The value that comes next, which then lies behind; None and no step if there is none."""
        start = yield from self._incoming.past_space(self._position)
        end = yield from json_end(self._incoming, start)
        if end < 0:
            return None
        self._position = end
        return value_of(self._incoming.rest[start:end])

    def _keep(self, key: str, value: Any, text: str) -> bool:
        if key in self._keys.name:
            self._name = value if isinstance(value, str) and value in self._names else ""
            return bool(self._name)
        if key in self._keys.id:
            self._id = value if isinstance(value, str) else json.dumps(value)
        if key in self._keys.arguments:
            self._arguments = value if isinstance(value, str) else text
            return value is not None
        return True

    def _tell(self) -> Steps[bool]:
        incoming, index = self._incoming, self._index
        incoming.emit(CallStart(index, self._name, self._id))
        incoming.take(self._position)
        self._position, self._told = 0, True
        return (yield from pass_json(incoming, lambda text: incoming.emit(CallArguments(index, text))))
