"""Which libllama would be loaded, and its fingerprint, without loading it.

A lane may need an environment variable that the library reads when it loads, so the certificate that names the
lane has to be found before.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._llama.memo import Memo

_fingerprints: dict[Path, str] = {}


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
    if folder not in _fingerprints:
        _fingerprints[folder] = _hash_libraries(folder, Memo(state_dir, "llama-libraries.json"))
    return _fingerprints[folder]


def _hash_libraries(folder: Path, memo: Memo) -> str:
    files = sorted({path.resolve() for path in folder.iterdir() if _is_library(path.name)})
    total = hashlib.sha256()
    for path in files:
        stat = path.stat()
        key = f"{path} {stat.st_size} {stat.st_mtime_ns}"
        digest = memo.get(key)
        if not isinstance(digest, str):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            memo.put(key, digest)
        total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()


def _is_library(name: str) -> bool:
    stem = name.removeprefix("lib")
    return stem.startswith(("llama", "ggml")) and any(end in name for end in (".so", ".dylib", ".dll"))
