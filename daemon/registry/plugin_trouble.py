"""What a plugin's exception means to a person: the file and line of the plugin, and one line of text."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

import pilotfish

LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of a plugin's that is not in force, and why. `where` is a file with its line when it is known."""

    plugin: str
    where: str
    message: str

    def __str__(self) -> str:
        who = f"plugin {self.plugin}: " if self.plugin else ""
        place = f" [{self.where}]" if self.where != self.plugin else ""
        return f"{who}{self.message}{place}"


def problem_of(plugin: str, where: str, error: BaseException, consequence: str = LEFT_OUT) -> Problem:
    """What `error`, raised by a plugin or while it was loaded from `where`, means."""
    return Problem(plugin, locate(error, where), f"{consequence}: {describe(error)}")


def describe(error: BaseException) -> str:
    """The exception in one line."""
    try:
        said = str(error)
    except BaseException as worse:  # its text is a plugin's code as well
        reraise_interrupt(worse)
        said = f"(and {type(worse).__name__} in its __str__)"
    return " ".join(f"{type(error).__name__}: {said}".split())


def reraise_interrupt(error: BaseException) -> None:
    """Raise `error` again if it is the user's Ctrl-C.

    Whatever else comes out of a plugin's code is the plugin's own and ends nothing but its call: SystemExit, a
    native extension's panic, CancelledError. Python raises the user's KeyboardInterrupt in the main thread only; one
    on another thread is a plugin's as well.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def locate(error: BaseException, where: str) -> str:
    """`file:line` of the plugin at which `error` came up; a syntax error's own line; `where` if nothing of it ran.

    The innermost line in the folder of the plugin's first line, so that neither a library it called nor pilotfish
    is blamed.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    if not frames:
        return where
    folder = Path(frames[0].filename).parent
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return f"{own[-1].filename}:{own[-1].lineno}"


_ROOT = Path(pilotfish.__file__).parent
_BUILT_INS = _ROOT / "plugins"
_MACHINERY = {"importlib", "pluggy"}


def _is_machinery(filename: str) -> bool:
    path = Path(filename)
    host = path.is_relative_to(_ROOT) and not path.is_relative_to(_BUILT_INS)
    return host or filename.startswith("<") or not _MACHINERY.isdisjoint(path.parts)
