"""The time by which the memory is judged: one that does not run away when somebody sets the clock.

A clock that jumps a month ahead for a moment would otherwise make everything too old at once. So a process believes
its clock only as far as time has really passed since it began; set back, it is believed.
"""

from __future__ import annotations

import time


def steady() -> float:
    """Seconds that no setting of the clock changes; while the machine sleeps they go on where the system can tell."""
    return time.clock_gettime(_STEADY)


def now() -> float:
    """Seconds since the epoch, at most as many more than at the process's beginning as have passed."""
    return min(time.time(), _began + steady() - _began_steady)


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS's CLOCK_MONOTONIC counts sleep as well
_began, _began_steady = time.time(), steady()
