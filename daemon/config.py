"""The configuration: a TOML file parsed once into types that cannot be wrong."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import tomli

from pilotfish.daemon.paths import config_dir
from pilotfish.hooks.errors import ConfigError

log = logging.getLogger("pilotfish.config")


@dataclass(frozen=True, slots=True)
class Speculation:
    """`[speculation]`"""

    enabled: bool = True
    max_width: int = 16  # tokens in one forward: the pending one and the proposals
    deadline_ms: int = 250  # how long a drafter that is not inline may take to propose


@dataclass(frozen=True, slots=True)
class Drafters:
    """`[drafters]`: the order of preference; `[drafters.<name>]` tables are handed to the drafter as they are."""

    order: tuple[str, ...] = ("suffix",)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plugins:
    """`[plugins]`: folders whose `.py` files are loaded as plugins."""

    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the config file can say. `path` is where it came from, None for the defaults."""

    speculation: Speculation = field(default_factory=Speculation)
    drafters: Drafters = field(default_factory=Drafters)
    plugins: Plugins = field(default_factory=Plugins)
    path: Path | None = None


def find() -> Path | None:
    """The config file in force: `$PILOTFISH_CONFIG`, the user's, then the system's."""
    if named := os.environ.get("PILOTFISH_CONFIG"):
        return Path(named)
    candidates = (config_dir() / "pilotfish.toml", Path("/etc/pilotfish/pilotfish.toml"))
    return next((path for path in candidates if path.is_file()), None)


def load(path: Path | None = None) -> Config:
    """Read `path` (or the file found by `find`). Raises ConfigError, whose message starts with the key's path."""
    path = path or find()
    if path is None:
        return Config()
    try:
        with path.open("rb") as file:
            table = tomli.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; create it or unset PILOTFISH_CONFIG") from error
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return parse(table, path)


def parse(table: Mapping[str, Any], path: Path | None = None) -> Config:
    """A config from a parsed TOML table. Unknown keys warn with the nearest known one."""
    where = str(path or "config")
    _warn_unknown(table, {"speculation", "drafters", "plugins"}, where)
    return Config(
        speculation=_speculation(_table(table, "speculation", where), where),
        drafters=_drafters(_table(table, "drafters", where), where),
        plugins=_plugins(_table(table, "plugins", where), path, where),
        path=path,
    )


def _speculation(table: Mapping[str, Any], where: str) -> Speculation:
    where = f"{where}: speculation"
    _warn_unknown(table, {f.name for f in fields(Speculation)}, where)
    default = Speculation()
    return Speculation(
        enabled=_value(table, "enabled", bool, default.enabled, where),
        max_width=_bounded(table, "max_width", default.max_width, 1, 64, where),
        deadline_ms=_bounded(table, "deadline_ms", default.deadline_ms, 1, 60_000, where),
    )


def _drafters(table: Mapping[str, Any], where: str) -> Drafters:
    where = f"{where}: drafters"
    order = _strings(table, "order", Drafters().order, where)
    tables = {key: value for key, value in table.items() if key != "order"}
    for key, value in tables.items():
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}.{key}: expected a table [drafters.{key}], got {value!r}")
    return Drafters(order, tables)


def _plugins(table: Mapping[str, Any], path: Path | None, where: str) -> Plugins:
    where = f"{where}: plugins"
    _warn_unknown(table, {"folders"}, where)
    base = path.parent if path else Path.cwd()
    names = _strings(table, "folders", (), where)
    return Plugins(tuple(base / Path(name).expanduser() for name in names))


def _table(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    return _value(table, key, dict, {}, where)


_T = TypeVar("_T")


def _value(table: Mapping[str, Any], key: str, kind: type[_T], default: _T, where: str) -> _T:
    value = table.get(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where}.{key}: expected {kind.__name__}, got {value!r}")
    return value


def _bounded(table: Mapping[str, Any], key: str, default: int, low: int, high: int, where: str) -> int:
    value = _value(table, key, int, default, where)
    if not low <= value <= high:
        raise ConfigError(f"{where}.{key}: must be between {low} and {high}, got {value}")
    return value


def _strings(table: Mapping[str, Any], key: str, default: tuple[str, ...], where: str) -> tuple[str, ...]:
    value = table.get(key, list(default))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where}.{key}: expected a list of strings, got {value!r}")
    return tuple(value)


def _warn_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table.keys() - known:
        near = difflib.get_close_matches(key, known, n=1)
        log.warning("%s: unknown key %r is ignored%s", where, key, f"; did you mean {near[0]!r}?" if near else "")
