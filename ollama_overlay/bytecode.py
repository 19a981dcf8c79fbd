"""Compiled modules for what a load imports, made once and not at every load.

pip compiles what it installs; uv does not, a checkout is not, and Ollama's user may not write where Python would keep
the result. Then each load compiles a hundred modules of ours anew: 0.25 s of two processes' time.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pilotfish

OTHERS = ("llama_cpp", "ik_llama_cpp")  # imported only where their libraries are to be loaded
_SERVES = ("pilotfish.ollama_overlay.begin", "pilotfish.daemon.runner.loading", "pilotfish.daemon.runner.lifetime")
_SECONDS = 120.0
_NEVER = "PYTHONDONTWRITEBYTECODE"


def compile_for_loads() -> None:
    """Compile our own modules, the engines' and those that serving imports, where that is missing or out of date.

    Raises nothing: where it cannot be kept, loads compile as before.
    """
    for folder in (*_own(), *_engines()):
        compileall.compile_dir(folder, quiet=2)
    environment = {name: value for name, value in os.environ.items() if name != _NEVER}
    command = [sys.executable, "-P", "-c", f"import {', '.join(_SERVES)}"]  # which writes what it compiles
    try:
        subprocess.run(command, env=environment, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return


def _own() -> list[Path]:
    """The package's folders. In a checkout they are links, which `compileall` does not follow."""
    package = Path(pilotfish.__file__).parent
    inside = sorted(path.resolve() for path in package.iterdir() if path.is_dir() and path.name != "__pycache__")
    return [package, *inside]


def _engines() -> list[Path]:
    specs = (importlib.util.find_spec(name) for name in OTHERS)  # finds a package without importing it
    return [Path(folder) for spec in specs if spec for folder in spec.submodule_search_locations or ()]
