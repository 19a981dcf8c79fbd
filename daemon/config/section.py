"""Reading a config file: its text, and one table of it key by key, so that every complaint names the key's path and
the remedy."""

from __future__ import annotations

import codecs
import difflib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import ConfigError

log = logging.getLogger("pilotfish.config")

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_text(path: Path) -> str:
    """A config file's text, without the byte order mark that some editors put before it. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        remedy = "check its owner and mode"
        if isinstance(error, FileNotFoundError):
            remedy = "create it, or unset PILOTFISH_CONFIG"
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error
    if data.startswith(_UTF_16) or b"\0" in data:
        raise ConfigError(f"{path}: not valid TOML: it is no UTF-8 text, UTF-16 by the look of it; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; save it as UTF-8") from error


class Section:
    """A table and the path that leads to it. Every getter raises ConfigError for a value of the wrong type.

    Keys that no getter asked for are unknown: `warn_unknown` reports them with the nearest known one.
    """

    def __init__(self, table: Mapping[str, Any], file: str, path: str = "") -> None:
        self._table = table
        self._file = file
        self._path = path
        self._known: set[str] = set()

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number", value)
        if not low <= value <= high:
            raise self._wrong(key, f"{low} to {high}", value)
        return value

    def real(self, key: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`, whole or not."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number", value)
        if not low <= value <= high:
            raise self._wrong(key, f"{low:g} to {high:g}", value)
        return float(value)

    def reals(self, key: str, default: Sequence[float], low: float, high: float) -> tuple[float, ...]:
        """A list of numbers from `low` to `high`, whole or not."""
        values = self._get(key, list(default))
        if not isinstance(values, list):
            raise self._wrong(key, "a list of numbers", values)
        for value in values:
            if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
                raise self._wrong(key, f"numbers from {low:g} to {high:g}", value)
        return tuple(float(value) for value in values)

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        """One of `choices`."""
        value = self._get(key, default)
        if not isinstance(value, str) or value not in choices:
            raise self._wrong(key, f"one of {', '.join(repr(str(choice)) for choice in choices)}", value)
        return value

    def strings(self, key: str, default: Sequence[str]) -> tuple[str, ...]:
        """A list of strings."""
        value = self._get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(value)

    def path(self, key: str, base: Path) -> Path | None:
        """A path, `~` expanded, relative to `base`; None when there is none or it is empty."""
        name = self.text(key, "")
        return self._as_path(key, name, base) if name else None

    def paths(self, key: str, base: Path) -> tuple[Path, ...]:
        """A list of paths, each as `path` reads it."""
        return tuple(self._as_path(key, name, base) for name in self.strings(key, ()))

    def section(self, key: str) -> Section:
        """The table below `key`; an empty one when there is none."""
        value = self._get(key, {})
        if not isinstance(value, Mapping):
            raise self._wrong(key, f"a table [{self._path_of(key)}]", value)
        return Section(value, self._file, self._path_of(key))

    def tables(self) -> dict[str, Mapping[str, Any]]:
        """Every key that was not asked for yet, each a table of somebody else's, as it stands."""
        return {key: self.section(key).raw for key in self._table if key not in self._known}

    def sections(self) -> Iterator[tuple[str, Section]]:
        """Every key that was not asked for yet with its table."""
        for key in self._table:
            if key not in self._known:
                yield key, self.section(key)

    @property
    def raw(self) -> Mapping[str, Any]:
        """The table as it stands."""
        return self._table

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self._table

    def where(self, key: str) -> str:
        """How a message begins that is about `key`: the file and the key's path."""
        return f"{self._file}: {self._path_of(key)}"

    def warn_unknown(self) -> None:
        """Log every key that no getter asked for, with the nearest that one did."""
        for key in self._table.keys() - self._known:
            near = difflib.get_close_matches(key, sorted(self._known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(self._known))}"
            log.warning("%s: unknown key, ignored; %s", self.where(key), hint)

    def _get(self, key: str, default: Any) -> Any:
        self._known.add(key)
        return self._table.get(key, default)

    def _path_of(self, key: str) -> str:
        shown = key if _BARE_KEY.fullmatch(key) else f'"{key}"'
        return f"{self._path}.{shown}" if self._path else shown

    def _as_path(self, key: str, name: str, base: Path) -> Path:
        try:
            return base / Path(name).expanduser()
        except RuntimeError as error:  # no such user, or none with a home folder
            raise ConfigError(f"{self.where(key)}: {name}: there is no such home folder; write the path out") from error

    def _wrong(self, key: str, expected: str, value: Any) -> ConfigError:
        return ConfigError(f"{self.where(key)}: expected {expected}, got {value!r}")
