"""Durations as Go writes them ("5m", "1h30m", "250ms"), because that is how Ollama's clients spell `keep_alive`."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pilotfish.hooks.errors import RequestError

FOREVER = math.inf

_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+")
_UNIT = re.compile(r"[^\d.]+")


def parse_go_duration(text: str) -> float:
    """Seconds in `text`. Raises RequestError with the words of Go's `time.ParseDuration`, which clients see."""
    quoted = json.dumps(text, ensure_ascii=False)
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    if not rest:
        raise RequestError(f"time: invalid duration {quoted}")
    seconds = 0.0
    while rest:
        number = _NUMBER.match(rest)
        if number is None:
            raise RequestError(f"time: invalid duration {quoted}")
        rest = rest[number.end() :]
        unit = _UNIT.match(rest)
        if unit is None:
            raise RequestError(f"time: missing unit in duration {quoted}")
        if unit[0] not in _UNIT_SECONDS:
            raise RequestError(f"time: unknown unit {json.dumps(unit[0], ensure_ascii=False)} in duration {quoted}")
        seconds += float(number[0]) * _UNIT_SECONDS[unit[0]]
        rest = rest[unit.end() :]
    return sign * seconds


def parse_keep_alive(value: Any) -> float | None:
    """Seconds to stay loaded from a request's `keep_alive`: None when unset, FOREVER for anything negative.

    As in Ollama a number is seconds and a string needs a unit: `-1` is forever, `"-1"` is an error.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RequestError(f'keep_alive must be a number of seconds or a duration such as "5m", got {value!r}')
    seconds = parse_go_duration(value) if isinstance(value, str) else float(value)
    return FOREVER if seconds < 0 else seconds


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, the unit of every duration in Ollama's answers."""
    return round(seconds * 1e9)
