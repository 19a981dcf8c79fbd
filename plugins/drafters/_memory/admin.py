"""What is remembered on disk, and forgetting it, from outside the process that remembers."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
from pathlib import Path

from pilotfish.hooks.types import MemoryInfo
from pilotfish.plugins.drafters._memory.files import ABOUT, ASIDE, CLEARED, SUFFIX, files_of, inspect
from pilotfish.plugins.drafters._memory.records import Passage

_DOOMED = ".cleared-"  # a folder on its way out
_KEY = re.compile(r"[0-9a-f]{32}")


def memories(root: Path) -> list[MemoryInfo]:
    """Every model's memory under `root`, sorted by name. Raises OSError."""
    _finish(root)
    found = [_describe(folder) for folder in _folders(root)]
    return sorted(found, key=lambda info: (info.model, info.key))


def forget(info: MemoryInfo) -> None:
    """Remove one model's memory. A process that holds it forgets it at its next request. Raises OSError."""
    _remove(info.path)


def forget_all(root: Path) -> None:
    """Remove every model's memory; processes that remember without a file forget too. Raises OSError."""
    for folder in _folders(root):
        _remove(folder)
    _finish(root)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A new file each time: its inode or its time is what running processes compare.
    fresh = root / f"{_DOOMED}{secrets.token_hex(4)}"
    fresh.touch(mode=0o600)
    fresh.replace(root / CLEARED)


def _describe(folder: Path) -> MemoryInfo:
    files = files_of(folder)
    passages = [passage for path in files if path.suffix == SUFFIX for passage in _passages(path)]
    times = [passage.time for passage in passages]
    name, weights = _about(folder / ABOUT)
    return MemoryInfo(
        key=folder.name,
        model=name,
        weights=weights,
        requests=len(passages),
        tokens=sum(len(passage.tokens) for passage in passages),
        bytes=sum(map(_size, files)),
        oldest=min(times, default=None),
        newest=max(times, default=None),
        path=folder,
    )


def _passages(path: Path) -> tuple[Passage, ...]:
    with contextlib.suppress(FileNotFoundError):  # a runner that makes room removes files at any time
        return inspect(path).passages
    return ()


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _about(path: Path) -> tuple[str, tuple[str, ...]]:
    try:
        table = json.loads(path.read_bytes())
        return str(table["name"]), tuple(map(str, table["weights"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "(unknown)", ()


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if _is_memory(path)]


def _is_memory(path: Path) -> bool:
    """Whether a folder is one of ours: the root may be a folder that holds other things."""
    if path.is_symlink() or not path.is_dir() or not _KEY.fullmatch(path.name):
        return False
    return (path / ABOUT).is_file() or any(file.suffix in (SUFFIX, ASIDE) for file in files_of(path))


def _remove(folder: Path) -> None:
    # Renamed first, in one step: who appends from now on begins a new folder.
    doomed = folder.with_name(f"{_DOOMED}{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(doomed)
        shutil.rmtree(doomed)


def _finish(root: Path) -> None:
    """Remove what a clear that was interrupted left."""
    if root.is_dir():
        for path in root.glob(f"{_DOOMED}*"):
            with contextlib.suppress(FileNotFoundError):  # somebody else clears, too
                shutil.rmtree(path) if path.is_dir() else path.unlink()
