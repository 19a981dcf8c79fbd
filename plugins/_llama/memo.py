"""A small JSON file of things worked out once: library hashes, lanes found at load."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

log = logging.getLogger("pilotfish.llama")

LIMIT = 200  # entries; the oldest go first, so that the file stays small however many models pass by


class Memo:
    """Key to JSON value, in `folder/name`. Without a folder it remembers nothing.

    A file that is missing, damaged or not ours is an empty memo; a file that cannot be written is a log line:
    what is remembered here can always be worked out again.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder / name if folder else None

    def get(self, key: str) -> Any:
        """The value put under `key`, or None."""
        return self._read().get(key)

    def put(self, key: str, value: Any) -> None:
        """Remember `value`; the file is replaced in one step, so readers never see half of it."""
        if self._path is None:
            return
        entries = self._read()
        entries.pop(key, None)
        entries[key] = value
        try:
            self._write(self._path, dict(list(entries.items())[-LIMIT:]))
        except OSError as error:
            log.warning("%s cannot be written (%s); the work is done again at the next load", self._path, error)

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            entries = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s is not readable (%s); it is made anew", self._path, error)
            return {}
        return entries if isinstance(entries, dict) else {}

    @staticmethod
    def _write(path: Path, entries: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(entries, file, indent=1)
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
