"""Where in a schema one is, for messages, and how much of it may be unfolded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pilotfish.hooks.errors import RequestError

MAX_WORK = 1 << 22  # characters of names, constants and rules; a grammar has at most half a million
_STEP = 40  # characters of a name in a place
_PLACE = 400  # characters of a place; its end is what matters
_NO_LIMIT = 2001  # libllama's, and one more for the item that comes before the repeated ones
_EACH = 16  # what looking at something costs besides its characters


def below(path: str, *steps: object) -> str:
    """The place that `steps` lead to from `path`, shortened: there may be thousands, each as long as the schema."""
    full = "/".join([path, *(_short(str(step)) for step in steps)])
    return full if len(full) <= _PLACE else f"#...{full[-_PLACE:]}"


def largest_repetition(schema: Any) -> str:
    """The place and the words of what repeats most in `schema`, of all that has a limit; empty without any.

    libllama refuses a grammar that repeats too much without saying where, and has no limit from 2,001 on.
    """
    found: list[tuple[int, str]] = []
    waiting = [(schema, "#")]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, dict):
            found += [(count, f"at {path}: {key} {value[key]!s:.100}") for key, count in _repetitions(value)]
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [(member, below(path, step)) for step, member in members if isinstance(member, dict | list)]
    return max(found, default=(0, ""))[1]


def _repetitions(schema: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key in ("minLength", "maxLength", "minItems", "maxItems"):
        count = schema.get(key)
        if isinstance(count, int) and (key.startswith("min") or count <= _NO_LIMIT):
            yield key, count
    if isinstance(pattern := schema.get("pattern"), str):
        counts = [int(digits[:9]) for digits in re.findall("[0-9]+", pattern)]
        yield "pattern", max((count for count in counts if count <= _NO_LIMIT), default=0)


def fail(path: str, what: str) -> NoReturn:
    """Raise the error for a schema that makes no sense at `path`."""
    raise RequestError(f"json_schema: at {path}: {what}")


class Work:
    """What one conversion may spend. An `allOf` can name one big object ten thousand times in a small schema."""

    def __init__(self, limit: int = MAX_WORK) -> None:
        self._left = limit

    def spend(self, path: str, count: int, characters: int = 0) -> None:
        """For `count` things with so many characters together. Raises RequestError when there is nothing left."""
        self._left -= count * _EACH + characters
        if self._left < 0:
            fail(path, "the schema unfolds into too much; leave parts out, or refer to them less often")


def _short(step: str) -> str:
    return step if len(step) <= _STEP else f"{step[: _STEP - 3]}..."
