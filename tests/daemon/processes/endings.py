"""Whether a process that is not ours to wait for has ended."""

from __future__ import annotations

import contextlib
import time

import psutil


def gone(pid: int) -> bool:
    """One that nobody has waited for yet counts as gone, too."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def until_gone(pid: int, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)
