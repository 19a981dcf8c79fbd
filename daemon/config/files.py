"""Which config file is in force: `$PILOTFISH_CONFIG`, the user's or the system's, the first that is named or exists.

The last one that was good is kept under the state folder, so that a bad edit costs nothing but a line in the log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import stat
from pathlib import Path
from typing import Any

import tomli

from pilotfish.daemon.config.paths import config_dir, state_dir
from pilotfish.daemon.config.reader import parse, to_table
from pilotfish.daemon.config.section import read_text
from pilotfish.daemon.config.types import Config
from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.remembered import write_atomically

log = logging.getLogger("pilotfish.config")
FILE_NAME = "pilotfish.toml"
SYSTEM_FILE = Path("/etc/pilotfish") / FILE_NAME
LAST_GOOD = "last-good-config.json"


def candidates() -> tuple[Path, ...]:
    """Where the config file is looked for, first come first served."""
    if named := variable("PILOTFISH_CONFIG"):
        return (Path(named),)
    try:
        return (config_dir() / FILE_NAME, SYSTEM_FILE)
    except ConfigError:  # a service's user without a home folder
        return (SYSTEM_FILE,)


def find() -> Path | None:
    """The config file in force: `$PILOTFISH_CONFIG` whether it exists or not, the user's, then the system's."""
    if variable("PILOTFISH_CONFIG"):
        return candidates()[0]
    return next((path for path in candidates() if _may_be_there(path)), None)


def _may_be_there(path: Path) -> bool:
    """One that may not be looked at counts, so that reading it says so: what it switches off must not be ignored."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def load(path: Path | None = None) -> Config:
    """Read `path` (or the file found by `find`). Raises ConfigError naming the file and the key's path."""
    path = path or find()
    return Config() if path is None else parse(_read(path)[0], path)


def load_written(path: Path) -> Config:
    """Like `load`, for a file that is expected to say something: an empty one is an accident. Raises ConfigError."""
    table, text = _read(path)
    if not text.strip():
        raise ConfigError(f"{path}: is empty; write a setting or a comment into it, or delete it, to have the defaults")
    return parse(table, path)


def load_or_last_good(path: Path | None = None) -> Config:
    """The file's config or, when it is broken or was emptied, the last good one of the same file, with a warning.

    Raises ConfigError when there is no last good one either.
    """
    path = path or find()
    if path is None:
        return Config()
    try:
        config = load_written(path)
    except ConfigError as error:
        if (good := last_good(path)) is None:
            return load(path)
        log.warning("%s; the last good config stays in force", error)
        return good
    remember_good(config)
    return config


def remember_good(config: Config) -> None:
    """Keep `config` as the last good one of its file. A state folder that cannot be written does without."""
    text = json.dumps({"path": str((config.path or Path()).absolute()), "config": to_table(config)}, default=str)
    with contextlib.suppress(OSError, ConfigError):
        place = state_dir() / LAST_GOOD
        if not place.is_file() or place.read_bytes() != text.encode():
            write_atomically(place, text.encode())


def last_good(path: Path) -> Config | None:
    """The last good config of the file `path`; None when none is known."""
    try:
        saved = json.loads((state_dir() / LAST_GOOD).read_text())
        return parse(saved["config"], path) if saved["path"] == str(path.absolute()) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError):
        return None


def _read(path: Path) -> tuple[dict[str, Any], str]:
    text = read_text(path)
    try:
        return tomli.loads(text), text
    except (ValueError, RecursionError) as error:  # ValueError: bad TOML, or a number of thousands of digits
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
