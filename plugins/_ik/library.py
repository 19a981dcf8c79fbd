"""ik_llama.cpp's library in this process: checked, loaded once, and its log.

It lies beside libllama without meeting it: both are loaded with names of their own (the wheel's ggml has a hash in
its name, and llama.cpp's carry a version) and keep their symbols to themselves, as ctypes loads them. What they cannot
share is a team of threads: each brings its own OpenMP, whose sleeping threads cost the other nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EnginePin
from pilotfish.plugins._cells.log import EngineLog
from pilotfish.plugins._ik import build, fitness
from pilotfish.plugins._ik.functions import LogCallback, describe

log = EngineLog("ik_llama.cpp", "pilotfish.ik")
_callback = LogCallback(log.write)  # kept here: the library holds no reference to it


@dataclass(frozen=True, slots=True)
class Library:
    """`lib` has the functions, described; `api` is the package's module of structures."""

    lib: Any
    api: Any


_loaded: dict[Path, Library] = {}


def open_library(state_dir: Path | None, log_target: str = "") -> Library:
    """The library, loaded on the first call. Raises EngineError with the cause and the remedy."""
    path = build.library()
    if path not in _loaded:
        fitness.check(state_dir)
        _loaded[path] = load_library(path)
    if log_target:
        log.target = log_target
    return _loaded[path]


def load_library(path: Path) -> Library:
    """The library, without a look at it from another process: it may end this one. Raises EngineError."""
    try:
        api = import_module("ik_llama_cpp._ctypes_api")
        library = Library(describe(api._lib), api)
    except (ImportError, OSError, AttributeError) as error:
        raise EngineError(f"ik_llama.cpp ({path}) cannot be loaded: {error}") from error
    if (there := Path(api._lib._name)) != path:
        raise EngineError(f"ik_llama.cpp ({path}) cannot be loaded beside another, {there}; restart to change it")
    library.lib.llama_log_set(_callback, None)
    library.lib.llama_backend_init()
    return library


def engine_pin(state_dir: Path | None) -> EnginePin:
    """Which build computes: a change in any of its libraries changes the fingerprint."""
    return EnginePin("ik", f"ik_llama.cpp ({build.PACKAGE} {build.MADE_FOR})", build.fingerprint(state_dir))
