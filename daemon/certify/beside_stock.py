"""`python -m pilotfish.daemon.certify.beside_stock PID WEIGHTS CIRCUMSTANCES SECONDS`: certify what stock serves.

What a load found in seconds left a model to stock; a certification looks further. A model that a runner serves is
certified by that runner. Here nobody is told what is asked of the stock server with process id PID, so its processor
time says it: once it has computed nothing for SECONDS, and until it does. The process ends with the server, and after
one certification, made or not, so that nothing stays in memory beside a stock server. How often that is tried for one
verdict is bounded and remembered (`Left.due`); one process does it at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from pilotfish.daemon.certify import background
from pilotfish.daemon.certify.idle_certifier import IdleCertifier
from pilotfish.daemon.certify.left_to_stock import LeftToStock
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.processes.folder_lock import take

MODULE = "pilotfish.daemon.certify.beside_stock"
LOCK = "beside-stock"  # a folder in the state folder
IDLE_SHARE = 0.05  # of one processor: an idle server takes less
_LOOK = 0.5  # seconds between two looks at the processor time


class Computing:
    """Whether process `pid` computes. `clock` is in seconds, `spent` what processor time it has taken."""

    def __init__(self, spent: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._spent, self._clock = spent, clock
        self._seen, self._at = spent(), clock()
        self._busy = True  # it is loading its model

    def __call__(self) -> bool:
        """Raises psutil.Error once it is gone."""
        if (passed := self._clock() - self._at) >= _LOOK:
            spent = self._spent()
            self._busy = spent - self._seen > IDLE_SHARE * passed
            self._seen, self._at = spent, self._clock()
        return self._busy


def processor_time(pid: int) -> Callable[[], float]:
    """Seconds that a process has computed; raises psutil.Error once it is gone, also as a zombie."""
    process = psutil.Process(pid)

    def spent() -> float:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(pid)
        times = process.cpu_times()
        return float(times.user + times.system)

    return spent


async def look_again(
    verdicts: LeftToStock,
    circumstances: str,
    busy: Callable[[], bool],
    idle_seconds: float,
    command: Sequence[str] = (sys.executable, "-m", background.MODULE),
) -> bool:
    """Whether a certificate was made, if the verdict is due for one. Raises psutil.Error once the server is gone."""
    left = verdicts.find(circumstances)
    if left is None or not left.due:
        return False
    verdicts.tried(circumstances)
    return await IdleCertifier(left.job, busy, idle_seconds=idle_seconds, command=command).run()


def _fits(weights: Path) -> bool:
    """Whether the model fits in memory once more: a server that idles is not to be swapped out."""
    try:
        return psutil.virtual_memory().available > weights.stat().st_size
    except OSError:
        return False


def main(argv: Sequence[str]) -> int:
    """The exit code is 0 when a certificate was made."""
    pid, weights, circumstances, seconds = argv
    folder = state_dir() / LOCK
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if take(folder) is None or not _fits(Path(weights)):
        return 1
    if hasattr(os, "nice"):
        os.nice(19)
    try:
        busy = Computing(processor_time(int(pid)))
        verdicts = LeftToStock(state_dir(), Path(weights))
        return 0 if asyncio.run(look_again(verdicts, circumstances, busy, float(seconds))) else 1
    except psutil.Error:  # the server is gone: the model is loaded again some time
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
