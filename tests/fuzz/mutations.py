"""Valid inputs in, broken ones out. Everything is drawn from a `random.Random`, so a seed names an input."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

_DEEP = "<deep:{}>"  # stands for a nesting that `json.dumps` would not write
_DEPTHS = (60, 900, 30_000)
_LONG = 100_000

NUMBERS = (
    0, -1, 1, 7, 255, 256, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1,
    10**400, -(10**400), 0.5, -0.0, 1e-320, 1e12, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
TEXTS = (
    "", " ", "\x00", "\n", "-1", "1e400", "NaN", "null", "\ud800", "\udfff\ud800", "a\u0300", "\u202e", "\ufeff",
    "{{", "{% for", "%s%n", "../../etc/passwd", "/", ":", "[" * 5000, "(" * 5000, "1s" * 5000, "9" * 5000,
    "root ::= " + "(" * 2000, "a?" * 3000, "--5", "a" * _LONG, "\N{COLLISION SYMBOL}" * 1000, "<|im_start|>" * 500,
)  # fmt: skip
WORDS = (0, 1, 3, 0xFF, 2**16, 2**31, 2**32 - 1, 2**32, 2**48, 2**62, 2**63, 2**64 - 1)  # for binary length fields


class Mutator:
    """Breaks inputs. `names` are keys worth giving a value that a valid input does not have."""

    def __init__(self, random: Random, names: Sequence[str] = ()) -> None:
        self.random = random
        self._names = [*names, "", "__proto__", "\ud800"]

    def json(self, value: Any) -> bytes:
        """A JSON text near `value`; once in eight times its bytes are broken too."""
        value = copy.deepcopy(value)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 4))):
            value = self._changed(value)
        data = encode(value)
        return self.raw(data) if self.random.random() < 1 / 8 else data

    def raw(self, data: bytes) -> bytes:
        """Some bytes of `data` flipped, cut, doubled, moved or added."""
        broken = bytearray(data)
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            at, length = self.random.randrange(len(broken) + 1), self.random.choice((1, 1, 4, 16, 200))
            self.random.choice(_RAW)(self.random, broken, at, length)
        return bytes(broken)

    def fields(self, parts: Sequence[bytes]) -> bytes:
        """A sequence of binary fields with some replaced, doubled, dropped or exchanged; sometimes raw bytes broken."""
        broken = list(parts)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            at = self.random.randrange(len(broken))
            match self.random.randrange(5):
                case 0 | 1:
                    broken[at] = self._field(broken[at])
                case 2:
                    broken.insert(at, broken[at])
                case 3 if len(broken) > 1:
                    del broken[at]
                case _:
                    other = self.random.randrange(len(broken))
                    broken[at], broken[other] = broken[other], broken[at]
        data = b"".join(broken)
        return self.raw(data) if self.random.random() < 1 / 4 else data

    def _field(self, field: bytes) -> bytes:
        code = {1: "B", 4: "I", 8: "Q"}.get(len(field))
        if code is None or self.random.random() < 0.2:
            return self.random.randbytes(self.random.choice((0, 1, 4, 8, 100)))
        return struct.pack("<" + code, self.random.choice(WORDS) % (1 << 8 * len(field)))

    def _changed(self, value: Any) -> Any:
        """`value` with one node below it, or itself, changed."""
        if isinstance(value, dict) and value and self.random.random() < 0.93:
            return self._changed_table(value)
        if isinstance(value, list) and value and self.random.random() < 0.8:
            at = self.random.randrange(len(value))
            if self.random.random() < 0.2:
                return value * self.random.choice((2, 50, 1000)) if len(encode(value)) < 1000 else value * 2
            return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        return self.nasty(value)

    def _changed_table(self, table: dict[str, Any]) -> dict[str, Any]:
        key = self.random.choice(list(table))
        match self.random.randrange(8):
            case 0:
                return {name: value for name, value in table.items() if name != key}
            case 1:
                return {**table, self.random.choice(self._names): self.nasty(table[key])}
            case 2:
                other = self.random.choice(list(table))
                return {**table, key: table[other], other: table[key]}
            case _:
                return {**table, key: self._changed(table[key])}

    def nasty(self, value: Any) -> Any:
        """Something that nobody expects where `value` stood."""
        match self.random.randrange(9):
            case 0 | 1 | 2:
                return self.random.choice(NUMBERS)
            case 3 | 4 | 5:
                return self.random.choice(TEXTS)
            case 6:
                return self.random.choice((None, True, False, [], {}, [[]] * 50, [None], {"": {}}))
            case 7:
                return [value] if self.random.random() < 0.5 else {"a": value}
            case _:
                return _DEEP.format(self.random.choice(_DEPTHS))


def encode(value: Any) -> bytes:
    """JSON with everything in it that Python's writer allows, surrogates as escapes, and deep nesting."""
    text = json.dumps(value)
    for depth in _DEPTHS:
        text = text.replace(json.dumps(_DEEP.format(depth)), "[" * depth + "]" * depth)
    return text.encode()


def _flip(random: Random, data: bytearray, at: int, length: int) -> None:
    for index in range(at, min(at + length, len(data))):
        data[index] ^= 1 << random.randrange(8)


def _drop(random: Random, data: bytearray, at: int, length: int) -> None:
    del data[at : at + length]


def _cut(random: Random, data: bytearray, at: int, length: int) -> None:
    del data[at:]


def _double(random: Random, data: bytearray, at: int, length: int) -> None:
    data[at:at] = data[at : at + length] * random.choice((1, 2, 50))


def _noise(random: Random, data: bytearray, at: int, length: int) -> None:
    data[at:at] = random.choice(
        (random.randbytes(length), b"\xff" * length, b"\x00" * length, b"\xed\xa0\x80", b"\xef\xbb\xbf")
    )


def _move(random: Random, data: bytearray, at: int, length: int) -> None:
    piece = data[at : at + length]
    del data[at : at + length]
    to = random.randrange(len(data) + 1)
    data[to:to] = piece


_RAW: tuple[Callable[[Random, bytearray, int, int], None], ...] = (_flip, _flip, _drop, _cut, _double, _noise, _move)
