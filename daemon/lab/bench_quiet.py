"""Whether the machine was left alone while something was measured.

What others use is the machine's busy time less our own: this process's and that of every process below it, those that
ended included (Ollama ends a process for every model that it unloads). Time that a hypervisor gave to others counts as
theirs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

LIMIT = 0.2  # cores that others may use before a measurement counts as disturbed
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")  # where the platform tells them apart


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Seconds: of the wall, of all cores since boot, and of our own processes."""

    wall: float
    busy: float
    own: float

    def others_until(self, later: Snapshot) -> float:
        """Cores that other processes used on average between two snapshots, 0.0 at least."""
        wall = later.wall - self.wall
        used = (later.busy - self.busy) - (later.own - self.own)
        return max(0.0, used / wall) if wall > 0 else 0.0


def snapshot() -> Snapshot:
    """Now."""
    times = psutil.cpu_times()
    return Snapshot(time.monotonic(), sum(getattr(times, name, 0.0) for name in _BUSY), _own())


def _own() -> float:
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            ended = times.children_user + times.children_system  # and waited for; theirs included
            total += times.user + times.system + ended
    return total


class QuietWatch:
    """Keeps what was seen. `warn` is called once, with a line for a person, when the machine is not quiet."""

    def __init__(self, warn: Callable[[str], None], take: Callable[[], Snapshot] = snapshot) -> None:
        self.others: list[float] = []  # cores, one figure per stretch
        self.load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # before anything of ours ran
        self._warn = warn
        self._warned = False
        self._take = take

    @property
    def quiet(self) -> bool:
        """Whether others stayed below the limit throughout."""
        return all(used <= LIMIT for used in self.others)

    @contextlib.contextmanager
    def stretch(self) -> Iterator[None]:
        """Measure others for the length of the block."""
        before = self._take()
        yield
        self.others.append(before.others_until(self._take()))
        if not self.quiet and not self._warned:
            self._warned = True
            self._warn(
                f"other processes use {self.others[-1]:.0%} of a core (load average {self.load_average:.1f} at the "
                "start): the figures will be noisy; close what else runs, or wait"
            )

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        others = [round(used, 3) for used in self.others]
        return {"quiet": self.quiet, "load_average": self.load_average, "others": others, "limit": LIMIT}
