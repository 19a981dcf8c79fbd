"""Which libllama would be loaded, and its fingerprint, without loading it.

A lane may need an environment variable that the library reads when it loads, so the certificate that names the
lane has to be found before.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells import fingerprint


def expected_folder() -> Path:
    """The folder that llama-cpp-python loads libllama from. Raises EngineError when it is not installed."""
    if named := os.environ.get("LLAMA_CPP_LIB_PATH"):
        return Path(named)
    spec = importlib.util.find_spec("llama_cpp")  # finds the package without importing it
    for folder in spec.submodule_search_locations or () if spec else ():
        return Path(folder) / "lib"
    raise EngineError("libllama is not installed; install it with: pip install 'pilotfish[llama]'")


def fingerprint_of(folder: Path, state_dir: Path | None) -> str:
    """A SHA-256 (hex) over the libraries in `folder`; each file is hashed once per state of it."""
    return fingerprint.fingerprint_of((folder,), state_dir)
