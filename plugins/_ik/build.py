"""Which ik_llama.cpp would be loaded, without loading it: its files, its version and its fingerprint."""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pilotfish.hooks.errors import EngineError, EngineMissing
from pilotfish.plugins._cells.fingerprint import fingerprint_of

PACKAGE = "ik-llama-cpp-python"
MADE_FOR = "0.1.5"  # whose structures the package describes, and whose defaults `abi` expects
INSTALL = "pip install 'pilotfish[ik]'"

_NAMES = ("libllama.so", "libllama.dylib")


def library() -> Path:
    """The file that the package loads. Raises EngineError when there is none, or not the version that fits."""
    if (found := _installed_version()) != MADE_FOR:
        raise EngineError(f"{PACKAGE} {found} is installed, but only {MADE_FOR} fits; install it with: {INSTALL}")
    if named := os.environ.get("IK_LLAMA_CPP_LIB_PATH"):
        path = Path(named)
        if not path.is_file():
            raise EngineError(f"IK_LLAMA_CPP_LIB_PATH names {path}, which is no file; unset it or name libllama")
        return path
    folder = _package() / "lib"
    for name in _NAMES:
        if (folder / name).is_file():
            return folder / name
    raise EngineError(f"{folder} holds no libllama; install it again with: pip install --force-reinstall {PACKAGE}")


def fingerprint(state_dir: Path | None) -> str:
    """A SHA-256 (hex) over libllama and the ggml beside it, or where wheels keep it. Raises EngineError."""
    folder = library().parent
    bundled = folder.parent.parent / f"{PACKAGE.replace('-', '_')}.libs"
    folders = [path for path in (folder, bundled) if path.is_dir()]
    return fingerprint_of(folders, state_dir)


def _installed_version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        raise EngineMissing(f"ik_llama.cpp is not installed; install it with: {INSTALL}") from None


def _package() -> Path:
    spec = importlib.util.find_spec("ik_llama_cpp")  # finds the package without importing it
    for folder in spec.submodule_search_locations or () if spec else ():
        return Path(folder)
    raise EngineMissing(f"ik_llama.cpp is not installed; install it with: {INSTALL}")
