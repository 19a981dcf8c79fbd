"""Folders for the sockets of draft hosts: held as long as their owner lives, and cleared away after it.

Ollama ends a runner with SIGKILL, which leaves it no time to remove anything. So a folder is locked by its owner (see
`folder_lock`), and whoever makes the next one removes those of this user's that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from pilotfish.daemon.processes import folder_lock

PREFIX = "pilotfish-host-"


class OwnFolder:
    """A new folder among the temporary files, 0700, with a short path, since a socket's must be."""

    def __init__(self) -> None:
        """Raises OSError when none can be made."""
        remove_left()
        self.path, held = _made()
        self.remove = weakref.finalize(self, _remove, self.path, held)  # at exit, too


def remove_left() -> None:
    """Remove the folders whose owner is gone."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_left(path)


def _made() -> tuple[Path, int]:
    """A folder and the descriptor that holds it. One that another process took for left in between is gone."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        held = folder_lock.take(path)
        if held is not None:
            if _is_there(path, held):
                return path, held
            os.close(held)


def _is_there(path: Path, held: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(path.lstat(), os.fstat(held))
    return False


def _remove_if_left(path: Path) -> None:
    if path.lstat().st_uid != os.geteuid() or (held := folder_lock.take(path)) is None:
        return
    _remove(path, held)


def _remove(path: Path, held: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(held)
