"""Whether a process that is not ours to wait for has ended."""

from __future__ import annotations

import psutil

from tests.waiting import is_gone, wait_until


def gone(pid: int) -> bool:
    """One that nobody has waited for yet counts as gone, too."""
    return not psutil.pid_exists(pid) or is_gone(psutil.Process(pid))


def until_gone(pid: int) -> None:
    wait_until(lambda: gone(pid), f"process {pid} is still there")
