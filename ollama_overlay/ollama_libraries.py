"""`engine.libllama = "ollama"`: whether the libraries of the user's Ollama may stand in for the bundled ones.

They bring the GPU backends that Ollama was installed with. Both libraries are described by a process of their own (see
`abi`) and compared; the verdict is remembered until a library changes.
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
from pathlib import Path
from typing import Any

from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.ollama_overlay.shim_script import LIBRARY_FOLDER
from pilotfish.ollama_overlay.stock import stock_environment

SECONDS = 2.0  # for each of the two; on an idle machine they take 0.3
_NAMES = ("libllama.so", "libllama.dylib")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def unfit(folder: Path, state_dir: Path) -> str:
    """Why the libraries in `folder` may not be loaded with the package's structures; empty when they may."""
    library, bundled = _library(folder), _bundled()
    if library is None or bundled is None:
        return f"no libllama in {folder}" if library is None else "llama-cpp-python is not installed"
    remembered, stamp = Remembered(state_dir), stamp_of(library)
    fact = f"abi {bundled} {stamp_of(bundled)}"
    known = remembered.get(library, fact, stamp)
    if isinstance(known, str):
        return known
    try:
        found = compare(describe({**stock_environment(), LIBRARY_FOLDER: str(folder)}), describe())
    except subprocess.TimeoutExpired:  # says nothing about the library, so it is looked at again at the next load
        return f"looking at it took more than {SECONDS:.0f} s"
    remembered.put(library, fact, stamp, found)
    return found


def load_backends(folder: Path) -> None:
    """Make the backends in `folder` known to the process, before anything else loads a library from there.

    Ollama's builds keep each backend in a library of its own, which ggml looks for beside the program: that is Python
    here. Builds that hold their backends themselves find nothing to add. Raises OSError when ggml cannot be loaded.
    """
    name = "libggml.dylib" if sys.platform == "darwin" else "libggml.so"
    ctypes.CDLL(str(folder / name)).ggml_backend_load_all_from_path(os.fsencode(folder))


def describe(environment: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """What `abi` prints in this environment, or this process's own; None when it fails or crashes.

    Raises subprocess.TimeoutExpired.
    """
    command = [sys.executable, "-P", "-m", "pilotfish.ollama_overlay.abi"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=True)
        described: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return described


def compare(theirs: Mapping[str, Any] | None, ours: Mapping[str, Any] | None) -> str:
    """The first difference that matters; empty when there is none."""
    if theirs is None or ours is None:
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


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("llama_cpp")
    folders = spec.submodule_search_locations or () if spec else ()
    return next((found for folder in folders if (found := _library(Path(folder) / "lib"))), None)
