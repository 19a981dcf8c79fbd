"""Results of looking at a large file once, remembered until the file changes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

log = logging.getLogger("pilotfish.fingerprints")

FILE_NAME = "fingerprints.json"
FORMAT = 1
MAX_FILES = 4096
SETTLED_SECONDS = 0.05  # file systems stamp changes with a clock that ticks every few milliseconds

Stamp = list[int]


class Remembered:
    """A JSON file in `state_dir` that maps a path to facts about the file that is there now.

    A fact is forgotten as soon as the file's size, modification time, change time or inode differs. A store that
    cannot be read counts as empty; one that cannot be written is reported once and does without. `state_dir` None
    remembers nothing. Two processes that write at once lose at most a fact, which is then found again.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self.path = state_dir / FILE_NAME if state_dir else None

    def get(self, file: Path, fact: str, stamp: Stamp) -> Any:
        """What was remembered about `file` under this stamp; None when nothing was."""
        entry = self._load().get(_key(file))
        if not isinstance(entry, dict) or entry.get("stamp") != stamp:
            return None
        facts = entry.get("facts")
        return facts.get(fact) if isinstance(facts, dict) else None

    def put(self, file: Path, fact: str, stamp: Stamp, value: Any) -> None:
        """Remember `value` (JSON) unless the file changed since `stamp`, or so recently that a change could hide."""
        if self.path is None or stamp_of(file) != stamp or not settled(stamp):
            return
        files = self._load()
        entry = files.pop(_key(file), None)
        facts = entry.get("facts") if isinstance(entry, dict) and entry.get("stamp") == stamp else None
        files[_key(file)] = {"stamp": stamp, "facts": {**(facts if isinstance(facts, dict) else {}), fact: value}}
        self._save(dict(list(files.items())[-MAX_FILES:]))

    def _load(self) -> dict[str, Any]:
        if self.path is None:
            return {}
        try:
            table = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.info("ignored %s: %s", self.path, error)
            return {}
        if not isinstance(table, dict) or table.get("format") != FORMAT or not isinstance(table.get("files"), dict):
            log.info("ignored %s: not of format %d", self.path, FORMAT)
            return {}
        files: dict[str, Any] = table["files"]
        return files

    def _save(self, files: dict[str, Any]) -> None:
        assert self.path is not None
        try:
            write_atomically(self.path, json.dumps({"format": FORMAT, "files": files}).encode())
        except OSError as error:
            log.warning("%s cannot be written (%s): files are read again next time", self.path, error.strerror)
            self.path = None


def stamp_of(file: Path) -> Stamp:
    """What tells one state of a file from the next. The change time cannot be set back by a program, as the
    modification time can. Raises OSError."""
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by a file with these bytes and this mode, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def settled(stamp: Stamp) -> bool:
    """Whether a change made now would get another time than those in the stamp.

    A time that lies ahead, because the clock was put back or somebody set it, differs from now as well.
    """
    return all(abs(time.time() - changed / 1e9) > SETTLED_SECONDS for changed in stamp[1:3])


def _key(file: Path) -> str:
    return str(file.resolve())
