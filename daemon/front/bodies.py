"""Request bodies: bytes to checked JSON fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from aiohttp import web

from pilotfish.daemon.http.json_text import parse_object, shown
from pilotfish.hooks.errors import RequestError

T = TypeVar("T")

MAX_BODY = 64 << 20  # bytes

_NAMES: dict[type, str] = {str: "a string", bool: "a boolean", int: "an integer", list: "an array", dict: "an object"}


async def read_json(request: web.Request) -> Body:
    """The body as an object. The Content-Type does not matter, as in Ollama. Raises RequestError.

    Bytes that are no UTF-8 are read as U+FFFD, as Go's JSON reads them.
    """
    raw = await request.read()
    if not raw.strip():
        raise RequestError("missing request body")
    return Body(parse_object(raw, repair=True))


class Body:
    """A JSON object whose fields are read with the type they must have; null and absent are the same."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def get(self, key: str, kind: type[T], default: T) -> T:
        """Field `key`, or `default`. Raises RequestError naming the field when it is of another type."""
        value = self.fields.get(key)
        if value is None:
            return default
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise RequestError(f"{key} must be {_NAMES[kind]}, got {shown(value)}")
        return value

    def number(self, key: str) -> float | None:
        """Field `key` as a number, or None."""
        value = self.fields.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise RequestError(f"{key} must be a number, got {shown(value)}")
        return value

    def integer(self, key: str) -> int | None:
        """Field `key` as an integer, or None."""
        return None if self.fields.get(key) is None else self.get(key, int, 0)

    def boolean(self, key: str) -> bool | None:
        """Field `key` as a boolean, or None."""
        return None if self.fields.get(key) is None else self.get(key, bool, False)
