"""Edits of the config file that keep its comments, its order and its formatting."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from pilotfish.daemon import config as config_file
from pilotfish.daemon.config import Config, model_key
from pilotfish.daemon.paths import config_dir
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.names import ModelName


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
    created = not path.exists()
    document = tomlkit.document() if created else _read(path)
    before = config_file.parse(document.unwrap(), path)
    table, key = _switch(document, before, model)
    changed = table.get("enabled") is not enabled
    if changed:
        table["enabled"] = enabled
        after = config_file.parse(document.unwrap(), path)
        _write(path, tomlkit.dumps(document))
    else:
        after = before
    exceptions = () if model else tuple(n for n, own in after.models.items() if own.enabled is (not enabled))
    return Edit(path, key, changed, created and changed, exceptions)


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
    try:
        return tomlkit.parse(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its owner and mode") from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; mend it first") from error


def _write(path: Path, text: str) -> None:
    """Write-then-rename, so that nobody ever reads half of it; a link stays one, and the mode stays."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".pilotfish-", delete=False) as file:
            file.write(text)
        written = Path(file.name)
        written.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o644)
        written.replace(target)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; run as its owner, or copy it to "
            f"{config_dir() / config_file.FILE_NAME}, which comes first"
        ) from error
