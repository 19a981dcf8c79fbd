"""Typed reads from a request's JSON body, with llama-server's rules.

A null is the same as an absent key. Where several names mean one thing, the first that is present counts. Booleans
pass for numbers and fractions are cut, as its JSON library does; a number out of range is either moved to the limit
(`clamp`) or refused, depending on the field. Messages start with `Field 'x': ` as its do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from ctypes import c_float
from typing import Any, NoReturn

from pilotfish.daemon.http.json_text import is_finite, kind, shown
from pilotfish.hooks.errors import RequestError, UnsupportedRequest

INT32_MAX = 2**31 - 1


class Fields:
    """One JSON object. `source` is the object itself, for values that are passed on as they are."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.source = source

    def find(self, *names: str) -> tuple[str, Any] | None:
        """The first of `names` that is present and not null, with its value."""
        return next(((name, self.source[name]) for name in names if self.source.get(name) is not None), None)

    def raw(self, name: str, default: Any = None) -> Any:
        """The value of `name` whatever its type, or `default` when absent or null."""
        value = self.source.get(name)
        return default if value is None else value

    def boolean(self, name: str, default: bool = False) -> bool:
        """True or false; nothing else passes for it."""
        value = self.raw(name, default)
        if not isinstance(value, bool):
            wrong_type(name, "a boolean", value)
        return value

    def integer(
        self, *names: str, default: int, low: int = -INT32_MAX - 1, high: int = INT32_MAX, clamp: bool = False
    ) -> int:
        """A whole number in [`low`, `high`]."""
        found = self.find(*names)
        if found is None:
            return default
        name, value = found
        number = int(_number(name, value))
        if clamp:
            return max(low, min(high, number))
        if not low <= number <= high:
            got = shown(number)
            raise RequestError(f"Field '{name}': Value must be between {low} <= value <= {high}, but got {got}")
        return number

    def real(self, name: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
        """A number that a 32-bit float can hold, moved into [`low`, `high`]."""
        found = self.find(name)
        if found is None:
            return default
        number = max(low, min(high, float(_number(name, found[1]))))
        if not math.isfinite(c_float(number).value):
            raise RequestError(f"Field '{name}': must be a finite 32-bit number, got {shown(found[1])}")
        return number

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.raw(name, default)
        if not isinstance(value, str):
            wrong_type(name, "a string", value)
        return value

    def array(self, name: str) -> list[Any]:
        """A list, empty when absent."""
        value = self.raw(name, [])
        if not isinstance(value, list):
            wrong_type(name, "an array", value)
        return value

    def object(self, name: str) -> Mapping[str, Any]:
        """An object, empty when absent."""
        value = self.raw(name, {})
        if not isinstance(value, dict):
            wrong_type(name, "an object", value)
        return value


def wrong_type(name: str, wanted: str, value: object) -> NoReturn:
    """Raise the error for a value of the wrong type."""
    raise RequestError(f"Field '{name}': type must be {wanted}, but is {kind(value)}")


def unsupported(name: str, what: str, remedy: str) -> NoReturn:
    """Raise the error for a well-formed wish that this runner does not fulfil."""
    raise UnsupportedRequest(f"Field '{name}': {what}; {remedy}")


def _number(name: str, value: object) -> float | int:
    if not isinstance(value, int | float):
        wrong_type(name, "a number", value)
    if not is_finite(value):
        raise RequestError(f"Field '{name}': must be a finite number, got {shown(value)}")
    return value
