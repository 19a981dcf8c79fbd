"""Whether there is a file or a folder, for places that one may not look into: `Path`'s own answers raise there."""

from __future__ import annotations

from pathlib import Path


def is_dir(path: Path) -> bool:
    """Whether there is a folder at `path`; False where nobody may know."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether there is a file at `path`; False where nobody may know."""
    try:
        return path.is_file()
    except OSError:
        return False
