"""libllama itself: the one import of it, its log, and which build it is.

`lib` is llama-cpp-python's low-level module, the complete C API as ctypes functions. Importing it costs about
70 ms and 15 MB beside numpy; nothing imports this module before a model is loaded.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from importlib.metadata import version
from pathlib import Path

from llama_cpp import llama_cpp as lib

from pilotfish.hooks.types import EnginePin
from pilotfish.plugins._llama.build import fingerprint_of

__all__ = ["engine_pin", "last_words", "lib", "library_folder", "send_log_to", "settle_log"]

log = logging.getLogger("pilotfish.llama")

_DEBUG, _WARN, _ERROR, _CONT = 1, 3, 4, 5  # ggml_log_level; CONT continues the line before it
_tail: deque[str] = deque(maxlen=6)


class _Log:
    """Where libllama's log goes, and the level of its last line."""

    target = ""  # nobody has decided: libllama prints by itself
    level = 0


def send_log_to(target: str) -> None:
    """Send libllama's log to "stderr", byte for byte as llama-server would print it, or to the "logger".

    Debug lines never reach stderr: llama-server drops them too, and Ollama parses what is left.
    """
    _Log.target = target
    lib.llama_log_set(_callback, None)


def settle_log() -> None:
    """Send libllama's log to the logger unless somebody has decided already where it goes."""
    if not _Log.target:
        send_log_to("logger")


def last_words() -> str:
    """libllama's last warnings and errors, for messages; reading them forgets them."""
    words = "; ".join(line.strip() for line in _tail if line.strip())
    _tail.clear()
    return words or "libllama gave no reason"


def _on_log(level: int, text: bytes, _user: object) -> None:
    level = _Log.level = _Log.level if level == _CONT else level
    if level in (_WARN, _ERROR):
        _tail.append(text.decode("utf-8", "replace"))
    if _Log.target == "stderr":
        if level != _DEBUG:
            os.write(2, text)
    elif log.isEnabledFor(logging.DEBUG):
        log.debug("%s", text.decode("utf-8", "replace").rstrip("\n"))


_callback = lib.llama_log_callback(_on_log)  # kept here: libllama holds no reference to it


def library_folder() -> Path:
    """The folder libllama was loaded from; its backends lie beside it."""
    return Path(lib._base_path)  # the package offers no public name for it


def engine_pin(state_dir: Path | None) -> EnginePin:
    """Which build computes: a change in any library of the folder changes the fingerprint."""
    build = (lib.llama_version() or b"unknown").decode("utf-8", "replace")
    package = version("llama-cpp-python")
    return EnginePin(
        "llama", f"llama.cpp {build} (llama-cpp-python {package})", fingerprint_of(library_folder(), state_dir)
    )


lib.llama_backend_init()
