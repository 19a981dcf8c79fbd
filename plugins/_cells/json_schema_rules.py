"""Pieces of GBNF for JSON: the rules that every schema may refer to, literals, repetitions, keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A rule's body and the other rules that it refers to, `space` aside."""

    body: str
    needs: tuple[str, ...] = ()


def _hex(digits: int) -> str:
    return f"[0-9a-fA-F]{{{digits}}}"


def _quoted(rule: str) -> str:
    return rf'"\"" {rule} "\""'


# Whitespace: nothing, one space, or one or two line breaks with an indentation. Never more, so that a model cannot
# go on with whitespace forever. None follows a whole value: what it stands in says whether some may.
BUILT_IN = {
    "space": BuiltIn(r'| " " | "\n"{1,2} [ \t]{0,20}'),
    "value": BuiltIn(
        "object | array | string | number | boolean | null",
        ("object", "array", "string", "number", "boolean", "null"),
    ),
    "object": BuiltIn(
        '"{" space ( string ":" space value ( "," space string ":" space value )* )? space "}"', ("string", "value")
    ),
    "array": BuiltIn('"[" space ( value ( "," space value )* )? space "]"', ("value",)),
    "string": BuiltIn(_quoted("char*"), ("char",)),
    "char": BuiltIn(r'[^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" ' + _hex(4) + ")"),
    "number": BuiltIn(
        'integer ("." decimals)? ([eE] [-+]? digits)?',
        ("integer", "digits", "decimals"),
    ),
    "integer": BuiltIn('"-"? digits', ("digits",)),
    "digits": BuiltIn("[0] | [1-9] [0-9]{0,15}"),
    "decimals": BuiltIn("[0-9]{1,16}"),
    "boolean": BuiltIn('"true" | "false"'),
    "null": BuiltIn('"null"'),
    "uuid": BuiltIn(_quoted(' "-" '.join(map(_hex, (8, 4, 4, 4, 12))))),
    "date": BuiltIn('[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])'),
    "time": BuiltIn('hour ":" minute ":" minute ("." [0-9]{3})? ("Z" | [-+] hour ":" minute)', ("hour", "minute")),
    "hour": BuiltIn('[01] [0-9] | "2" [0-3]'),
    "minute": BuiltIn("[0-5] [0-9]"),
    "date-string": BuiltIn(_quoted("date"), ("date",)),
    "time-string": BuiltIn(_quoted("time"), ("time",)),
    "date-time-string": BuiltIn(_quoted('date "T" time'), ("date", "time")),
}

_ESCAPED = str.maketrans({"\r": r"\r", "\n": r"\n", '"': r"\"", "\\": r"\\"})


def literal(text: str) -> str:
    """Exactly `text`."""
    return f'"{text.translate(_ESCAPED)}"'


def alternatives(bodies: Sequence[str]) -> str:
    """One of `bodies`."""
    return f"({' | '.join(bodies)})"


def repeated(item: str, low: int, high: int | None, *, separator: str = "") -> str:
    """`item` from `low` to `high` times, or without a limit; an expression of one item or none at all."""
    if high == 0:
        return ""
    if not separator:
        return item + _times(low, high)
    more = repeated(f"({separator} {item})", max(0, low - 1), None if high is None else high - 1)
    several = f"{item} {more}".strip()
    return several if low else f"({several})?"


def _times(low: int, high: int | None) -> str:
    short = {(0, 1): "?", (0, None): "*", (1, None): "+"}
    return short.get((low, high)) or f"{{{low},{'' if high is None else high}}}"


@dataclass(slots=True)
class _Node:
    """A place in the tree of names; `ends` where one of them is complete."""

    children: dict[str, _Node] = field(default_factory=dict)
    ends: bool = False


def key_other_than(names: Sequence[str]) -> str:
    """A JSON string that is none of `names`, for an additional property.

    A beginning of a name that is not empty is left out too, as in stock. Characters stand in classes as they are; a
    name with `-`, `]` or a backslash makes these classes what stock's are.
    """
    root = _Node()
    for name in names:
        node = root
        for character in name:
            node = node.children.setdefault(character, _Node())
        node.ends = True
    return f'["] ( {"".join(_other_than(root))} ){"" if root.ends else "?"} ["]'


def _other_than(node: _Node) -> Iterator[str]:
    characters = sorted(node.children)
    for character in characters:
        child = node.children[character]
        inner = f" ({''.join(_other_than(child))})" if child.children else " char+"
        yield f"[{character}]{inner} | "
    if characters:
        yield f'[^"{"".join(characters)}] char*'
