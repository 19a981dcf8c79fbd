"""Which build an engine's libraries are, without loading them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pilotfish.manifests.fingerprints import library_fingerprint

_fingerprints: dict[tuple[Path | None, ...], str] = {}


def fingerprint_of(folders: Iterable[Path], state_dir: Path | None, beside: Path | None = None) -> str:
    """A SHA-256 (hex) over the libraries in the folders and the one `beside`; a file is hashed once per state of it."""
    folders = tuple(folders)
    key = (*folders, beside)
    if key not in _fingerprints:
        files = {path.resolve() for folder in folders for path in folder.iterdir() if is_library(path.name)}
        _fingerprints[key] = library_fingerprint(files | ({beside} if beside else set()), state_dir)
    return _fingerprints[key]


def is_library(name: str) -> bool:
    """Whether a file of that name belongs to an engine of this family."""
    stem = name.removeprefix("lib")
    return stem.startswith(("llama", "ggml")) and any(end in name for end in (".so", ".dylib", ".dll"))
