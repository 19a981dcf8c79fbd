"""Whose libllama a runner under Ollama loads: llama-cpp-python's own, or that of the user's Ollama.

Ollama's is taken where `engine.libllama = "ollama"` asks for it, for the GPU backends that Ollama was installed with,
and where llama-cpp-python was installed without libraries, so that none had to be compiled. A library is described by
a process of its own (see `abi`) and compared with what the package's structures were made for; the verdict is
remembered until the library changes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import LIBLLAMA
from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.ollama_overlay.known_abi import DESCRIBED, MADE_FOR, PACKAGE
from pilotfish.ollama_overlay.shim_script import LIBRARY_FOLDER, LIBRARY_PATH
from pilotfish.ollama_overlay.stock import stock_environment

SECONDS = 3.0  # of the five that a decision may take; on an idle machine it takes 0.3
WITH_LIBRARIES = f"pip install --force-reinstall --no-cache-dir {PACKAGE}=={MADE_FOR}"
_NAMES = ("libllama.so", "libllama.dylib")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Libllama:
    """`usable`: there is one to load; `ollama`: it is Ollama's. `remark` says for a person whose it is and why."""

    usable: bool
    ollama: bool
    remark: str


def choose(wanted: str, folder: Path, state_dir: Path) -> Libllama:
    """The libllama to load; `wanted` is `engine.libllama`, `folder` has Ollama's."""
    if wanted not in LIBLLAMA:  # a folder; the runner takes it from the config
        misfit = unfit(Path(wanted), state_dir)
        return Libllama(not misfit, False, f"the libllama in {wanted}" + (f" does not fit: {misfit}" if misfit else ""))
    own = has_own_library()
    if wanted != "ollama" and own:
        return Libllama(True, False, f"the libllama of {PACKAGE}")
    misfit = unfit(folder, state_dir)
    if not misfit:
        return Libllama(True, True, f"the libllama in {folder}")
    if own:
        return Libllama(True, False, f"the libllama of {PACKAGE}; the one in {folder} does not fit: {misfit}")
    why = f"{PACKAGE} has no libllama of its own, and the one in {folder} does not fit: {misfit}"
    return Libllama(False, False, f"{why}; for one of its own run: {WITH_LIBRARIES}")


def has_own_library() -> bool:
    """Whether llama-cpp-python is installed with its libraries."""
    spec = importlib.util.find_spec("llama_cpp")  # finds the package without importing it
    folders = spec.submodule_search_locations or () if spec else ()
    return any(_library(Path(folder) / "lib") for folder in folders)


def unfit(folder: Path, state_dir: Path) -> str:
    """Why the libraries in `folder` may not be loaded with the package's structures; empty when they may."""
    library = _library(folder)
    if library is None:
        return f"no libllama in {folder}"
    if why := _unknown_package():
        return why
    remembered, stamp, fact = Remembered(state_dir), stamp_of(library), f"abi of {PACKAGE} {MADE_FOR}"
    known = remembered.get(library, fact, stamp)
    if isinstance(known, str):
        return known
    try:
        found = compare(describe(environment_with(folder)), DESCRIBED)
    except subprocess.TimeoutExpired:  # says nothing about the library, so it is looked at again at the next load
        return f"looking at it took more than {SECONDS:.0f} s"
    remembered.put(library, fact, stamp, found)
    return found


def environment_with(folder: Path) -> dict[str, str]:
    """The environment in which Ollama's libraries in `folder` find one another, as Ollama sets it for its server."""
    given = stock_environment()
    path = os.pathsep.join(filter(None, (str(folder), given.get(LIBRARY_PATH))))
    return {**given, LIBRARY_FOLDER: str(folder), LIBRARY_PATH: path}


def _unknown_package() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, of a decision that is waited for

    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        return f"{PACKAGE} is not installed"
    return "" if found == MADE_FOR else f"{PACKAGE} {found} is installed, but only {MADE_FOR} is known to fit"


def load_backends(folder: Path) -> None:
    """Make the backends in `folder` known to the process, before anything else loads a library from there.

    Ollama's builds keep each backend in a library of its own, which ggml looks for beside the program: that is Python
    here. Builds that hold their backends themselves find nothing to add. Raises OSError when ggml cannot be loaded.
    """
    name = "libggml.dylib" if sys.platform == "darwin" else "libggml.so"
    ctypes.CDLL(str(folder / name)).ggml_backend_load_all_from_path(os.fsencode(folder))


def describe(environment: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """What `abi` prints in this environment, or in this process's own; None when it fails or crashes.

    Raises subprocess.TimeoutExpired.
    """
    command = [sys.executable, "-P", "-m", "pilotfish.ollama_overlay.abi"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=True)
        described: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return described


def compare(theirs: Mapping[str, Any] | None, ours: Mapping[str, Any]) -> str:
    """The first difference that matters; empty when there is none."""
    if theirs is None:
        return "it cannot be loaded with the functions that llama-cpp-python needs"
    for name, value in ours.items():
        if name == "version":
            continue
        if name.endswith(" fits") and not theirs.get(name):
            return f"{name.removesuffix(' fits')}: its structure is larger"
        if theirs.get(name) != value:
            return f"{name}: {_difference(theirs.get(name), value)}"
    return _version_difference(str(theirs.get("version", "")), str(ours.get("version", "")))


def _version_difference(theirs: str, ours: str) -> str:
    found, wanted = _VERSION.match(theirs), _VERSION.match(ours)
    if not found or not wanted:
        return f"its version {theirs!r} cannot be compared with {ours!r}"
    if found[1] != wanted[1] or tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        return f"its version is {theirs}, the package is made for {ours}"
    return ""


def _difference(theirs: object, ours: object) -> str:
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return f"{theirs!r} instead of {ours!r}"
    changed = [key for key in ours if theirs.get(key) != ours[key]]
    return f"other defaults of {', '.join(changed[:4])}"


def _library(folder: Path) -> Path | None:
    return next((folder / name for name in _NAMES if (folder / name).exists()), None)
