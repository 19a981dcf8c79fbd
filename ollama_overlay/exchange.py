"""Two folders that take each other's names in one step, so that nobody finds neither of them."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_AT_FDCWD = -100  # from <fcntl.h> of Linux
_RENAME_EXCHANGE = 2  # renameat2(2)
_RENAME_SWAP = 2  # macOS, renamex_np(2)


def exchange(one: Path, other: Path) -> bool:
    """Whether it was done. Where the system or the file system cannot, or one of them is missing, nothing changes."""
    library = ctypes.CDLL(None)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        return bool(library.renamex_np(first, second, _RENAME_SWAP) == 0)
    if not hasattr(library, "renameat2"):  # glibc before 2.28, and some other C libraries
        return False
    return bool(library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE) == 0)
