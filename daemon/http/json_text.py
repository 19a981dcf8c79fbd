"""JSON that strangers sent: bytes to values that can be passed on, in time that grows with their number alone.

Both servers read their requests here. Half of a surrogate pair (`"\\ud83d"`) is no character and cannot be encoded
again; it is read as U+FFFD, as Go's JSON reads it. A byte order mark before the text is passed over.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from pilotfish.hooks.errors import RequestError

HEADROOM = 200  # of the interpreter's 1,000 nested calls, by which it also counts nested arrays
SHOWN = 60  # characters of a value that a message repeats

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # the beginning of an escape for half of a pair, or of a whole one
_KINDS: tuple[tuple[Any, str], ...] = (
    (bool, "a boolean"),
    (int | float, "a number"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)


def parse_object(raw: bytes, *, repair: bool = False) -> dict[str, Any]:
    """The JSON object in `raw`, UTF-8 text. With `repair`, bytes that are none become U+FFFD.

    Raises RequestError for anything else; the message names the offset of the first byte that is no UTF-8.
    """
    try:
        text = _text(raw, "replace" if repair else "strict")
        value = _with_headroom(lambda: _parsed(text))
    except RecursionError as error:
        raise _no_json("it is nested too deeply; send a flatter object") from error
    except json.JSONDecodeError as error:
        raise _no_json(str(error)) from error
    except ValueError as error:  # a constant, or an integer beyond the interpreter's own limit
        limit = sys.get_int_max_str_digits()
        raise _no_json(f"a number has more than {limit} digits" if "digits" in str(error) else str(error)) from error
    if not isinstance(value, dict):
        raise RequestError(f"the request body must be a JSON object, got {kind(value)}")
    return value


def is_finite(value: int | float) -> bool:
    """Whether a float can hold the number at all: not infinite, no NaN, no integer of 400 digits."""
    return abs(value) <= sys.float_info.max


def kind(value: object) -> str:
    """What JSON calls the type of `value`, with its article."""
    return next((name for types, name in _KINDS if isinstance(value, types)), "null")


def shown(value: object) -> str:
    """A JSON value for a message, shortened."""
    pieces = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    text = "".join(itertools.islice(pieces, SHOWN + 1))  # a message needs no megabyte, not even for a moment
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _text(raw: bytes, errors: str) -> str:
    try:
        return raw.decode("utf-8", errors).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise RequestError(f"the request body is not valid UTF-8 text: {error}; send UTF-8 JSON") from error


def _parsed(text: str) -> Any:
    value = json.loads(text, parse_constant=_no_constant)
    if not _SURROGATE.search(text):
        return value
    written = json.dumps(value, ensure_ascii=False)  # UTF-16 is where halves of pairs can stand, and be replaced
    return json.loads(written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _with_headroom(work: Callable[[], Any], frames: int = HEADROOM) -> Any:
    """`work()`, deeper in the stack: what could be read there can be written again by whoever gets it."""
    return work() if frames == 0 else _with_headroom(work, frames - 1)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_json(reason: str) -> RequestError:
    return RequestError(f"the request body is not valid JSON: {reason}")
