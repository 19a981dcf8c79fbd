"""What a plugin raises stays with the plugin: in words for a person, or as an error that is safe to raise anywhere.

Wherever a plugin is called, BaseException is caught: `sys.exit()` in a library, a coroutine's CancelledError and the
panics of native extensions are none of Exception, and would end a thread that others wait for.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

from pilotfish.hooks.errors import EngineError, ProtocolViolation

_SHOWN = 1000  # characters

T = TypeVar("T")


def said(error: BaseException) -> str:
    """The error's text in one line that can be shown anywhere."""
    text = _text(error)
    return "(its text cannot be had)" if text is None else one_line(text)


def one_line(text: str) -> str:
    """`text` from a plugin without line breaks, control characters and lone surrogates, and of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _SHOWN]).split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def where(error: BaseException) -> str:
    """What was raised, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {said(error)}{at}"


def reason(what: str, error: BaseException) -> str:
    """Why a plugin's call `what` failed; a broken contract speaks for itself."""
    return said(error) if isinstance(error, ProtocolViolation) else f"{what} raised {where(error)}"


def contained(error: BaseException) -> Exception:
    """`error`, if a coroutine can raise it like any other; else an EngineError that it caused.

    SystemExit and KeyboardInterrupt would end the event loop that they are raised in, CancelledError the task, without
    an answer for anybody; StopIteration cannot be raised there at all, and one that cannot be shown spoils the answer.
    """
    if isinstance(error, Exception) and not isinstance(error, _SPECIAL) and _text(error) is not None:
        return error
    safe = EngineError(f"a plugin or engine raised {where(error)}; the log has the details")
    safe.__cause__ = error
    return safe


def _text(error: BaseException) -> str | None:
    try:
        return str(error)
    except BaseException:
        return None


def guarded(call: Callable[[], T]) -> T:
    """What `call` returns; what it raises, as `contained` makes it. For calls of plugins on an event loop's behalf."""
    try:
        return call()
    except BaseException as error:
        safe = contained(error)
    raise safe


_SPECIAL = (StopIteration, StopAsyncIteration, futures.CancelledError, futures.InvalidStateError)
