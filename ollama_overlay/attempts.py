"""Loads that were begun and never ended: what a crash inside the engine's library leaves behind.

A library that brings the process down cannot be caught, and Ollama would report an error at every load. So a runner
marks the beginning of a load and takes the mark away when it ends, well or badly; marks that stay are counted. Ollama
also kills a runner whose client went away while it loaded, so one mark means nothing yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = "loading"
TOO_MANY = 2
FORGOTTEN_AFTER = 24 * 3600.0  # seconds, after which it is tried again


class Attempts:
    """The marks for one weight file, in the state folder. Never raises: without marks there is just no count."""

    def __init__(self, state_dir: Path, model: Path) -> None:
        self._path = state_dir / FOLDER / hashlib.sha256(os.fsencode(model.absolute())).hexdigest()[:32]

    def begin(self) -> None:
        """A load begins."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(b"x")

    def end(self) -> None:
        """The load ended, or failed in a way that was noticed."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def reason(self) -> str:
        """Why the runner should not try again now; empty when it may."""
        try:
            status = self._path.stat()
        except OSError:
            return ""
        if status.st_size < TOO_MANY or time.time() - status.st_mtime > FORGOTTEN_AFTER:
            return ""
        return (
            f"the last {status.st_size} loads ended before the model was ready, as after a crash; "
            f"it is tried again after a day, or when you delete {self._path}"
        )


@contextlib.contextmanager
def unfinished(state_dir: Path, model: Path) -> Iterator[None]:
    """A load of `model` is marked as unfinished while this lasts."""
    attempts = Attempts(state_dir, model)
    attempts.begin()
    try:
        yield
    finally:
        attempts.end()
