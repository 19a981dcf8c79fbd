"""One thing that the doctor has to say."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How much it matters: something does not work, something may go wrong, something is good to know."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` was found about `about` (a model, a file, `Ollama`, `memory`), why it matters, and what to do about it.

    `remedy` is empty where nothing has to be done.
    """

    level: Level
    about: str
    what: str
    why: str
    remedy: str = ""
