"""Durations as Go writes them ("5m", "1h30m", "250ms"), because that is how Ollama's clients spell `keep_alive`."""

from __future__ import annotations

import math
import re
from typing import Any

from pilotfish.daemon.http.json_text import is_finite, shown
from pilotfish.hooks.errors import RequestError

FOREVER = math.inf
LONGEST = 9_223_372_036.0  # seconds of Go's longest duration, 292 years: how Ollama writes "forever"
MAX_TEXT = 100  # characters; Go itself never writes more than 26

_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.]*)")


def parse_go_duration(text: str) -> float:
    """Seconds in `text`. Raises RequestError with the words of Go's `time.ParseDuration`, which clients see."""
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0.0
    if not unsigned or len(text) > MAX_TEXT:
        raise _invalid(text)
    seconds, at = 0.0, 0
    while at < len(unsigned):
        part = _PART.match(unsigned, at)
        if part is None:
            raise _invalid(text)
        seconds += float(part[1]) * _unit_seconds(part[2], text)
        at = part.end()
    if seconds > LONGEST:
        raise _invalid(text)
    return -seconds if text.startswith("-") else seconds


def parse_keep_alive(value: Any) -> float | None:
    """Seconds to stay loaded from a request's `keep_alive`: None when unset, FOREVER for anything negative.

    As in Ollama a number is seconds and a string needs a unit: `-1` is forever, `"-1"` is an error.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RequestError(f'keep_alive must be a number of seconds or a duration such as "5m", got {shown(value)}')
    if isinstance(value, str):
        return lasting(parse_go_duration(value))
    if not is_finite(value):
        raise RequestError(f"keep_alive must be a finite number of seconds, got {shown(value)}")
    return lasting(float(value))


def lasting(seconds: float) -> float:
    """FOREVER for anything negative, and for what is longer than Go's longest duration."""
    return seconds if 0 <= seconds < LONGEST else FOREVER


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, the unit of every duration in Ollama's answers."""
    return round(seconds * 1e9)


def _unit_seconds(unit: str, text: str) -> float:
    if not unit:
        raise RequestError(f"time: missing unit in duration {shown(text)}")
    if unit not in _UNIT_SECONDS:
        raise RequestError(f"time: unknown unit {shown(unit)} in duration {shown(text)}")
    return _UNIT_SECONDS[unit]


def _invalid(text: str) -> RequestError:
    return RequestError(f"time: invalid duration {shown(text)}")
