"""llama-cpp-python as `CMAKE_ARGS=-DLLAMA_BUILD=OFF` installs it: without libraries."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path


def bare_llama_cpp(folder: Path) -> dict[str, str]:
    """A copy of the installed package below `folder`, and the environment in which Python takes it."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, folder / "llama_cpp", ignore=shutil.ignore_patterns("lib"))
    return {"PYTHONPATH": str(folder)}
