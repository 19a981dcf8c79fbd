"""Loads that crashed: what a crash inside the engine's library leaves behind.

A library that brings the process down cannot be caught, and Ollama would report an error at every load. So while a
model is loaded, Python's faulthandler has a file to write to: a fatal signal (SEGV, BUS, ILL, FPE, ABRT, which C++'s
`terminate` and ggml's assertions end in) leaves a report there before the process dies of it, and reports are counted.

Nothing else counts. Ollama ends a runner with SIGKILL whenever it likes, also in the middle of a load, when its client
was interrupted; a load that hangs is ended in the same way, and SIGTERM and SIGINT are somebody's wish. None of them
writes a report. Neither does the kernel when it kills for want of memory, nor a library that calls `exit`: such loads
are tried again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = "loading"
TOO_MANY = 2
FORGOTTEN_AFTER = 24 * 3600.0  # seconds, after which it is tried again
_REPORT = b"Fatal Python error: "  # how faulthandler begins
_MOST_BYTES = 1 << 20  # of reports that are looked at


class Attempts:
    """The crashes of one weight file, in the state folder. Never raises: without a file there is just no count."""

    def __init__(self, state_dir: Path, model: Path) -> None:
        self._path = state_dir / FOLDER / hashlib.sha256(os.fsencode(model.absolute())).hexdigest()[:32]

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A crash before the end of the block leaves a report."""
        before = faulthandler.is_enabled()
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                reports = stack.enter_context(self._path.open("ab"))
                stack.callback(self._remove_empty)
                faulthandler.enable(reports, all_threads=False)
                stack.callback(_report_to_stderr if before else faulthandler.disable)
            yield

    def forget(self) -> None:
        """The model was loaded: what crashed before is no reason any more."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def reason(self) -> str:
        """Why the runner should not try again now; empty when it may."""
        try:
            with self._path.open("rb") as file:
                reports = file.read(_MOST_BYTES).split(_REPORT)[1:]
                # Either way, since a clock that was put back would make it young for ever.
                age = abs(time.time() - os.fstat(file.fileno()).st_mtime)
        except OSError:
            return ""
        if len(reports) < TOO_MANY or age > FORGOTTEN_AFTER:
            return ""
        how = reports[-1].partition(b"\n")[0].decode("ascii", "replace")
        return (
            f"the last {len(reports)} loads crashed before the model was ready ({how}); "
            f"it is tried again after a day, or when you delete {self._path}"
        )

    def _remove_empty(self) -> None:
        with contextlib.suppress(OSError):
            if self._path.stat().st_size == 0:
                self._path.unlink()


def _report_to_stderr() -> None:
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # where stderr has no descriptor
        faulthandler.enable()
