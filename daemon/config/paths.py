"""Where pilotfish keeps what it remembers. Each can be moved by an environment variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import platformdirs

from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError


def state_dir() -> Path:
    """Pins, checks and certificates: `$PILOTFISH_STATE`, else the platform's state folder.

    Raises ConfigError, as all of these do, for a user without a home folder.
    """
    return _named("PILOTFISH_STATE") or _at_home(platformdirs.user_state_dir, "PILOTFISH_STATE")


def cache_dir() -> Path:
    """What can be made again, such as the demo's model store: `$PILOTFISH_CACHE`, else the platform's cache folder."""
    return _named("PILOTFISH_CACHE") or _at_home(platformdirs.user_cache_dir, "PILOTFISH_CACHE")


def config_dir() -> Path:
    """`$XDG_CONFIG_HOME/pilotfish`, or the platform's place for it."""
    return _at_home(platformdirs.user_config_dir, "XDG_CONFIG_HOME")


def data_dir() -> Path:
    """What was installed for the user, such as the overlay: `$PILOTFISH_DATA`, else the platform's data folder."""
    return _named("PILOTFISH_DATA") or _at_home(platformdirs.user_data_dir, "PILOTFISH_DATA")


def _named(name: str) -> Path | None:
    named = variable(name)
    return Path(named) if named else None


def _at_home(place: Callable[[str], str], name: str) -> Path:
    remedy = f"this user has no home folder; set HOME, or {name} to a folder"
    try:
        path = Path(place("pilotfish"))
    except RuntimeError as error:
        raise ConfigError(f"{error}: {remedy}") from error
    if not path.is_absolute():  # older versions of platformdirs leave `~` as it stands, a folder of that name
        raise ConfigError(f"{path}: {remedy}")
    return path
