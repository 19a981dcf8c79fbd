"""Where pilotfish keeps what it remembers. Each can be moved by an environment variable."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from pilotfish.hooks.environment import variable


def state_dir() -> Path:
    """Pins, checks and certificates: `$PILOTFISH_STATE`, else the platform's state folder."""
    return Path(variable("PILOTFISH_STATE") or platformdirs.user_state_dir("pilotfish"))


def cache_dir() -> Path:
    """What can be made again, such as the demo's model store: `$PILOTFISH_CACHE`, else the platform's cache folder."""
    return Path(variable("PILOTFISH_CACHE") or platformdirs.user_cache_dir("pilotfish"))


def config_dir() -> Path:
    """`$XDG_CONFIG_HOME/pilotfish`, or the platform's place for it."""
    return Path(platformdirs.user_config_dir("pilotfish"))


def data_dir() -> Path:
    """What was installed for the user, such as the overlay: `$PILOTFISH_DATA`, else the platform's data folder."""
    return Path(variable("PILOTFISH_DATA") or platformdirs.user_data_dir("pilotfish"))
