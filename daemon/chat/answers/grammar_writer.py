"""GBNF, rule by rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.chat.answers.called_tools import Tool

_NOT_IN_LITERALS = re.compile(r'[\n\r\t"\\]')
_NOT_IN_CLASSES = re.compile(r"[\n\r\t\]\[\\^-]")


@dataclass(frozen=True, slots=True)
class CallWish:
    """`required`: the answer has to call a tool. `several`: it may call more than one.

    `space` is what the model's template puts behind the marker before a call: a call only begins with both.
    """

    required: bool = False
    several: bool = False
    space: str = ""


@dataclass(frozen=True, slots=True)
class CallRules:
    """After which word a call has begun, and the rule for what follows then.

    `begun` is a text that the prompt ends with and that may be part of a word.
    """

    then: Mapping[str, str]
    begun: str = ""


SPACE = "space"  # whitespace as llama-server's JSON grammars allow it


class GrammarWriter:
    """Collects rules. Rules for JSON schemas are left to whoever compiles the grammar: `schemas` holds them by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Mapping[str, Any]] = {}
        self._rules: dict[str, str] = {SPACE: r'| " " | "\n"{1,2} [ \t]{0,20}'}

    def rule(self, name: str, body: str) -> str:
        """Define a rule; its name."""
        self._rules[name] = body
        return name

    def arguments(self, tool: Tool, number: int) -> str:
        """A rule for the arguments of a tool; its name."""
        return self.schema(f"arguments{number}", tool.schema)

    def schema(self, name: str, schema: Mapping[str, Any]) -> str:
        """A rule for the JSON texts of a schema; its name."""
        self.schemas[name] = schema
        return name

    def json_text(self) -> str:
        """A rule for a JSON string; its name."""
        characters = r'[^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})'
        return self.rule("json-text", rf'"\"" ({characters})* "\""')

    def text(self) -> str:
        """All rules but those of schemas."""
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules.items())


def literal(text: str) -> str:
    """A text as it stands; nothing for an empty one."""
    return f'"{_NOT_IN_LITERALS.sub(_escaped, text)}"' if text else ""


def any_of(characters: Iterable[str]) -> str:
    """One of these characters."""
    return f"[{''.join(_NOT_IN_CLASSES.sub(_escaped, character) for character in sorted(characters))}]"


def none_of(characters: Iterable[str]) -> str:
    """Any other character."""
    return f"[^{any_of(characters)[1:]}"


def one_of(bodies: Iterable[str]) -> str:
    """One of several bodies."""
    return f"({' | '.join(bodies)})"


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02X}"


def free_text(writer: GrammarWriter, name: str, then: Mapping[str, str], *, ends: bool, begun: str = "") -> str:
    """A rule for any text up to the first of some words, each of which goes on with a rule of its own.

    With `ends`, the text may end before a word has come; `begun` is the beginning of a word that stands before it. The
    states are the beginnings of words (Aho and Corasick, 1975).
    """
    beginnings = sorted({word[:length] for word in then for length in range(len(word))}, key=lambda b: (len(b), b))
    names = {beginning: f"{name}{number}" for number, beginning in enumerate(beginnings)}
    alphabet = sorted({character for word in then for character in word})
    for beginning in beginnings:
        ways: dict[str, list[str]] = {}
        for character in alphabet:
            ways.setdefault(_goes_on(beginning + character, names, then), []).append(character)
        ways.pop(names[""], None)
        others = none_of(character for characters in ways.values() for character in characters)
        bodies = [f"{others} {names['']}", *(f"{any_of(characters)} {way}" for way, characters in ways.items())]
        writer.rule(names[beginning], ("| " if ends else "") + " | ".join(bodies))
    return names[begun]


def _goes_on(text: str, names: Mapping[str, str], then: Mapping[str, str]) -> str:
    """What follows after `text`: the longest end of it that is a word, or a word's beginning, decides."""
    ends = (text[start:] for start in range(len(text) + 1))
    return next(then.get(end) or names[end] for end in ends if end in then or end in names)
