"""Whether a file is another than at the last look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pilotfish.manifests.looking import is_dir

Stamp = tuple[int, ...]


def stamp_of(path: Path) -> Stamp | None:
    """What differs after any change to a file, a change of its mode included; None when there is none."""
    try:
        return stamp_from(path.stat())
    except OSError:
        return None


def stamp_from(status: os.stat_result) -> Stamp:
    """The stamp of a file that was looked at already."""
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def stamps_of(paths: Iterable[Path]) -> dict[Path, Stamp]:
    """The stamps of those that exist."""
    return {path: stamp for path in paths if (stamp := stamp_of(path)) is not None}


def files_below(folder: Path, depth: int) -> Iterator[Path]:
    """Every file exactly `depth` levels below `folder`; nothing of what cannot be listed."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if depth == 1:
            yield entry
        elif is_dir(entry):
            yield from files_below(entry, depth - 1)
