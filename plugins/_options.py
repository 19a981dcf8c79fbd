"""Reading one drafter's config table, `[drafters.<name>]`."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from pilotfish.hooks.errors import ConfigError

log = logging.getLogger("pilotfish.drafters")


class DrafterTable:
    """A drafter's table, read key by key. Every message starts with the key's path, `drafters.<name>.<key>`.

    Values out of range or of the wrong type raise ConfigError; unknown keys are ignored with a warning.
    """

    def __init__(self, name: str, table: Mapping[str, Any] | None, known: tuple[str, ...]) -> None:
        self._where = f"drafters.{name}"
        self._table = table or {}
        for key in self._table.keys() - set(known):
            near = difflib.get_close_matches(key, known, n=1)
            log.warning(
                "%s.%s: unknown key ignored%s", self._where, key, f"; did you mean {near[0]!r}?" if near else ""
            )

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self._table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(f"{self._where}.{key}: expected a whole number from {low} to {high}, got {value!r}")
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        value = self._table.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(f"{self._where}.{key}: expected a number from {low:g} to {high:g}, got {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._table.get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self._where}.{key}: expected true or false, got {value!r}")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, none negative; empty when the key is absent."""
        value = self._table.get(key, ())
        if not isinstance(value, list | tuple) or not all(type(item) is int and item >= 0 for item in value):
            raise ConfigError(f"{self._where}.{key}: expected a list of token ids or positions, got {value!r}")
        return tuple(value)

    def text(self, key: str, meaning: str) -> str:
        """A string that must be there; `meaning` says for people what it is."""
        value = self._table.get(key)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{self._where}.{key}: expected {meaning}, got {value!r}")
        return value

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        """One of `choices`, in lower case."""
        value = self._table.get(key, default)
        if not isinstance(value, str) or value.lower() not in choices:
            known = ", ".join(f'"{choice}"' for choice in choices)
            raise ConfigError(f"{self._where}.{key}: expected one of {known}, got {value!r}")
        return value.lower()
