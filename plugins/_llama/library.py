"""libllama itself: the one import of it, its log, and which build it is.

`lib` is llama-cpp-python's low-level module, the complete C API as ctypes functions. Importing it costs about
70 ms and 15 MB beside numpy; nothing imports this module before a model is loaded. ImportError covers whatever
is missing: the package, or its library.
"""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from pathlib import Path

from pilotfish.hooks.errors import EngineMissing
from pilotfish.hooks.types import EnginePin
from pilotfish.plugins._cells.log import EngineLog
from pilotfish.plugins._llama.build import expected_folder, fingerprint_of
from pilotfish.plugins._llama.kernels import Kernels, kernels_for

_kernels: Kernels | None = None
with contextlib.suppress(EngineMissing):  # what is missing is said below
    if _path := kernels_for(expected_folder()):
        _kernels = Kernels(_path)  # before libllama: of two functions of a name the loader takes the first

try:
    from llama_cpp import llama_cpp as lib
except (OSError, RuntimeError) as error:
    raise ImportError(
        f"{error}: llama-cpp-python was installed without a library that loads; --force-reinstall builds one"
    ) from error

__all__ = [
    "batch_invariant",
    "engine_pin",
    "last_words",
    "lib",
    "library_folder",
    "log_aside",
    "send_log_to",
    "settle_log",
]

_log = EngineLog("libllama", "pilotfish.llama")
last_words = _log.last_words
log_aside = _log.aside


def send_log_to(target: str) -> None:
    """Send libllama's log to "stderr", byte for byte as llama-server would print it, or to the "logger".

    Debug lines never reach stderr: llama-server drops them too, and Ollama parses what is left.
    """
    _log.target = target
    lib.llama_log_set(_callback, None)


def settle_log() -> None:
    """Send libllama's log to the logger unless somebody has decided already where it goes."""
    if not _log.target:
        send_log_to("logger")


_callback = lib.llama_log_callback(_log.write)  # kept here: libllama holds no reference to it


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
# Types of weights whose products kernels compute, and what the length of a row has to be a multiple of.
batch_invariant = _kernels.begin(lib._lib) if _kernels else {}
