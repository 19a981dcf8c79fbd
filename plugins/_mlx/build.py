"""Which MLX and mlx-lm would compute, without importing them, which takes a second."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path

from pilotfish.hooks.errors import EngineMissing
from pilotfish.manifests.fingerprints import library_fingerprint

REMEDY = "install it with: pip install 'pilotfish[mlx]'"
_LIBRARIES = (".so", ".dylib", ".metallib")
_fingerprints: dict[tuple[Path, ...], str] = {}


def fingerprint(state_dir: Path | None, device: str = "") -> str:
    """A SHA-256 (hex) over MLX's libraries and all of mlx-lm's models, whose Python code decides what is computed.

    Where the config names a `device`, or the environment tells MLX anything, over that too: other kernels compute
    then. Raises EngineMissing.
    """
    folders = (_folder("mlx"), mlx_lm_folder() / "models")
    if folders not in _fingerprints:
        libraries = [path for path in folders[0].rglob("*") if path.name.endswith(_LIBRARIES)]
        code = [*(folders[0] / "nn").rglob("*.py"), *folders[1].glob("*.py")]
        _fingerprints[folders] = library_fingerprint([*libraries, *code], state_dir)
    told = sorted((name, value) for name, value in os.environ.items() if name.startswith("MLX_"))
    if not device and not told:
        return _fingerprints[folders]
    return hashlib.sha256(json.dumps([_fingerprints[folders], device, told]).encode()).hexdigest()


def mlx_lm_folder() -> Path:
    """Where mlx-lm is installed. Raises EngineMissing."""
    return _folder("mlx_lm")


def version() -> str:
    """Both, as their packages say."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("mlx", "mlx-lm"))


def has_metal() -> bool:
    """Whether this machine is one on which MLX computes with Metal."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def _folder(package: str) -> Path:
    """Where a package is installed. Raises EngineMissing."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise EngineMissing(f"MLX models need mlx and mlx-lm, and {package} is not installed; {REMEDY}")
    return Path(places[0])
