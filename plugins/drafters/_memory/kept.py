"""What a model's requests taught, in the state folder, so that the next process begins with it.

`<state>/suffix/<key>.json`, one file for each model, under its weights and tokenizer: how often predictions of each
cell came true. No text and no ids are in it. Reading and writing happen on a thread of their own; when the disk fails,
the log says so once, and the drafter goes on without. Of two processes with one model, the last one's word stays.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs

from pilotfish.hooks.environment import variable
from pilotfish.plugins.drafters._memory.files import MemoryOwner
from pilotfish.plugins.drafters._suffix.calibration import N_CELLS, TAUGHT_MOST, Taught

log = logging.getLogger("pilotfish.drafters")

VERSION = 1  # of the cells' meaning
LARGEST = 1 << 20  # bytes of a file that is read
EVERY = 60.0  # seconds between two writings
EXIT_SECONDS = 1.0  # that a process which ends waits for the last one


class KeptTaught:
    """Keeps `taught` in `path`. Nothing here raises or waits; `flush` waits."""

    def __init__(self, path: Path, owner: MemoryOwner, taught: Taught) -> None:
        self._path, self._owner, self._taught = path, owner, taught
        self._written = time.monotonic()
        self._changed = self._failed = False
        self._worker: threading.Thread | None = None
        self._do(self._read)
        atexit.register(self.flush, EXIT_SECONDS)

    def changed(self) -> None:
        """A request taught something: it is written soon."""
        self._changed = True
        if time.monotonic() - self._written >= EVERY:
            self._do(self._write)

    def flush(self, timeout: float | None = None) -> bool:
        """Write what is not written yet and wait for it; False if `timeout` seconds were not enough."""
        if worker := self._worker:
            worker.join(timeout)
        if self._changed:
            self._do(self._write)
        if worker := self._worker:
            worker.join(timeout)
        return not (worker and worker.is_alive())

    def _do(self, job: Callable[[], None]) -> None:
        if self._worker is None or not self._worker.is_alive():
            worker = threading.Thread(target=self._on_disk, args=(job,), name="suffix", daemon=True)
            try:
                worker.start()
            except RuntimeError:  # no thread is left in the system, or the process ends
                return
            self._worker = worker

    def _on_disk(self, job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:
            if not self._failed:
                log.warning("%s: %s; what suffix learns is not kept", self._path, error)
            self._failed = True

    def _read(self) -> None:
        try:
            if self._path.stat().st_size > LARGEST:
                raise ValueError("too large to be ours")
            table = json.loads(self._path.read_bytes())
            right, seen = _counts(table["right"]), _counts(table["seen"])
            if table["version"] != VERSION or any(r > s for r, s in zip(right, seen, strict=True)):
                raise ValueError("of another version, or damaged")
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            log.warning("%s: %r; suffix begins anew", self._path, error)
            return
        for cell, (r, s) in enumerate(zip(right, seen, strict=True)):
            if s and not self._taught.seen[cell]:  # what was learned meanwhile stays
                self._taught.right[cell], self._taught.seen[cell] = r, s

    def _write(self) -> None:
        self._changed, self._written = False, time.monotonic()
        right, seen = ([round(count, 2) for count in counts] for counts in (self._taught.right, self._taught.seen))
        right = [min(r, s) for r, s in zip(right, seen, strict=True)]
        about = {"version": VERSION, "model": self._owner.name, "weights": self._owner.weights}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(f".{os.getpid()}.part")
        unfinished.touch(mode=0o600)
        unfinished.write_text(json.dumps({**about, "right": right, "seen": seen}), encoding="utf-8")
        unfinished.replace(self._path)


def kept_file(owner: MemoryOwner) -> Path:
    """Where what `owner`'s requests taught is kept."""
    root = variable("PILOTFISH_STATE") or platformdirs.user_state_dir("pilotfish")
    return Path(root) / "suffix" / f"{owner.key}.json"


def _counts(values: list[float]) -> list[float]:
    """Raises ValueError or TypeError for anything but the counts of all cells."""
    if len(values) != N_CELLS or not all(math.isfinite(value) and 0 <= value <= TAUGHT_MOST + 1 for value in values):
        raise ValueError("not the counts of all cells")
    return [float(value) for value in values]
