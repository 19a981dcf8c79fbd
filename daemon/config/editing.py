"""Edits of the config file that keep its comments, its order and its formatting."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.paths import config_dir
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.section import read_text
from pilotfish.daemon.config.types import Config, model_key
from pilotfish.daemon.processes.folder_lock import alone_in
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.remembered import write_atomically


@dataclass(frozen=True, slots=True)
class Edit:
    """What an edit did. `exceptions` are models whose own settings say otherwise."""

    path: Path
    key: str
    changed: bool
    created: bool = False
    exceptions: tuple[str, ...] = ()


def set_enabled(enabled: bool, model: str | None = None) -> Edit:
    """Switch speculation on or off, for one model or in general, in the file in force (the user's, if there is none).

    Raises ConfigError when the file cannot be read, understood or written, and InvalidModelName.
    """
    path = config_file.find() or config_file.candidates()[0]
    with _editing(path) as target:
        return _set_enabled(path, target, enabled, model)


def _set_enabled(path: Path, target: Path, enabled: bool, model: str | None) -> Edit:
    created = not target.exists()
    document = tomlkit.document() if created else _read(path)
    before = parse(document.unwrap(), path)
    table, key = _switch(document, before, model)
    changed = table.get("enabled") is not enabled
    if changed:
        table["enabled"] = enabled
        after = parse(document.unwrap(), path)
        _write(target, tomlkit.dumps(document))
    else:
        after = before
    exceptions = () if model else tuple(n for n, own in after.models.items() if own.enabled is (not enabled))
    return Edit(path, key, changed, created and changed, exceptions)


@contextlib.contextmanager
def _editing(path: Path) -> Iterator[Path]:
    """The file behind `path`, for one edit at a time: two that read the same file would undo each other."""
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(target.parent):
            yield target
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; run as its owner, {_elsewhere(path)}"
        ) from error


def _elsewhere(path: Path) -> str:
    with contextlib.suppress(ConfigError):
        if (users := config_dir() / config_file.FILE_NAME) != path:
            return f"or copy it to {users}, which comes first"
    return "or name another file with PILOTFISH_CONFIG"


def _switch(document: tomlkit.TOMLDocument, config: Config, model: str | None) -> tuple[Any, str]:
    """The table that holds the switch, made if need be, and the switch's path for a person."""
    if model is None:
        return _table(document, "speculation"), "speculation.enabled"
    name = model_key(config.models, model) or ModelName.parse(model).short
    return _table(_table(document, "models", super_table=True), name), f'models."{name}".enabled'


def _table(parent: Any, key: str, *, super_table: bool = False) -> Any:
    if key not in parent:
        parent[key] = tomlkit.table(is_super_table=super_table)
    return parent[key]


def _read(path: Path) -> tomlkit.TOMLDocument:
    text = read_text(path)
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; mend it first") from error


def _write(target: Path, text: str) -> None:
    """By write-then-rename, so that nobody ever reads half of it; the mode stays."""
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o644
    write_atomically(target, text.encode(), mode)
