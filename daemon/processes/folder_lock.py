"""One process at a time in a folder, without a file of its own: the lock is on the folder itself.

The kernel drops it when the process ends, however it ends. It binds only those who ask for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for whoever else is in `folder`, then keep others out until the block ends. Raises OSError without it.

    A file system without locks (some network drives) keeps nobody out.
    """
    descriptor = os.open(folder, _FLAGS)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take(folder: Path) -> int | None:
    """A descriptor that holds the lock on `folder` until it is closed; None when it cannot be had now.

    Never follows a link to the folder.
    """
    try:
        descriptor = os.open(folder, _FLAGS | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
