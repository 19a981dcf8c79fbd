"""The part of `[drafters.suffix]` that says what is remembered, how much of it, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError
from pilotfish.plugins._options import DrafterTable

MODES = ("off", "session", "disk")
KEYS = ("memory", "memory_tokens", "memory_days", "prompts", "folder")
DAY = 86_400.0  # seconds
MOST_TOKENS = 20_000_000  # about 800 MB of working memory


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """`off` remembers nothing, `session` until the model is unloaded, `disk` in files that outlive it.

    The oldest passages go first once there are more than `tokens`; none is kept for more than `seconds`. With
    `prompts` the prompts are remembered too, not only what the model wrote.
    """

    mode: str = "session"
    tokens: int = 1_000_000
    seconds: float = 30 * DAY
    prompts: bool = False
    folder: Path | None = None  # None: the platform's

    @classmethod
    def parse(cls, options: DrafterTable, table: Mapping[str, Any]) -> MemoryConfig:
        """Raises ConfigError, whose message starts with the key's path."""
        default = cls()
        return cls(
            mode=_mode(table.get("memory", default.mode)),
            tokens=options.integer("memory_tokens", default.tokens, 1_000, MOST_TOKENS),
            seconds=DAY * options.number("memory_days", default.seconds / DAY, 0.01, 3_650),
            prompts=_flag(table.get("prompts", default.prompts)),
            folder=_folder(table.get("folder")),
        )

    @property
    def root(self) -> Path:
        """Where the models' memories lie: as configured, else `memory` in the state folder."""
        if self.folder:
            return self.folder
        return Path(variable("PILOTFISH_STATE") or platformdirs.user_state_dir("pilotfish")) / "memory"


def _mode(value: object) -> str:
    if not isinstance(value, str) or value not in MODES:
        choices = ", ".join(f'"{mode}"' for mode in MODES)
        raise ConfigError(f"drafters.suffix.memory: expected one of {choices}, got {value!r}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"drafters.suffix.prompts: expected true or false, got {value!r}")
    return value


def _folder(value: object) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not Path(value).expanduser().is_absolute():
        raise ConfigError(f"drafters.suffix.folder: expected the absolute path of a folder, got {value!r}")
    return Path(value).expanduser()
