"""Launches that were left to the stock server, remembered so that the next one goes there at once.

That speculation has nothing to gain with a model is only known once it was loaded, while the user waits; so it is
found out once. A verdict is kept with what else is known about the weight file, under the launch's circumstances: it
is void when the file changes, when anything in the circumstances does, when the certificate that it came from is gone,
and when its time is up. One that a look at load gave may be looked at again while nobody asks for anything
(`beside_stock.py`), a few times, a day apart. Nothing is imported here that takes time, because the shim asks at every
load.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pilotfish.manifests.remembered import Remembered, stamp_of

DAY = 24 * 3600.0  # seconds
MOST_TRIES = 3  # certifications of one verdict
_FACT = "left to stock"
_MOST = 16  # verdicts of one weight file


@dataclass(frozen=True, slots=True)
class Left:
    """Why stock serves a launch. Times are seconds since the epoch; `until` None means for good.

    `certificate` is the file that says so, where it was one. Where it was none, `job` is what a certification would be
    told, `tries` how many were begun, and `tried` when the last was.
    """

    reason: str
    since: float
    until: float | None = None
    certificate: str = ""
    job: str = ""
    tries: int = 0
    tried: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether it still says something."""
        in_time = self.until is None or self.since <= time.time() < self.until
        return in_time and (not self.certificate or Path(self.certificate).is_file())

    @property
    def due(self) -> bool:
        """Whether a certification may be tried now."""
        return bool(self.job) and self.tries < MOST_TRIES and not 0 <= time.time() - self.tried < DAY


class LeftToStock:
    """The verdicts about one weight file. Never raises: what cannot be read or written is not remembered."""

    def __init__(self, state_dir: Path | None, weights: Path) -> None:
        self._remembered = Remembered(state_dir)
        self._weights = weights

    def find(self, circumstances: str) -> Left | None:
        """The verdict that holds under exactly these circumstances."""
        left = _parsed(self._table().get(circumstances))
        return left if left and left.holds else None

    def newest(self) -> Left | None:
        """The last verdict that holds under whatever circumstances, to be shown: without its job."""
        table = self._table().values()
        found = [replace(left, job="") for entry in table if (left := _parsed(entry)) and left.holds]
        return max(found, key=lambda left: left.since, default=None)

    def put(self, circumstances: str, left: Left) -> None:
        """Remember one."""
        table = self._table()
        table.pop(circumstances, None)
        self._write({**dict(list(table.items())[1 - _MOST :]), circumstances: asdict(left)})

    def tried(self, circumstances: str) -> None:
        """A certification of the verdict begins."""
        if left := self.find(circumstances):
            self.put(circumstances, replace(left, tries=left.tries + 1, tried=round(time.time(), 3)))

    def forget(self) -> None:
        """The model was loaded and speculates, or was measured again: nothing that was said of it counts."""
        if self._table():
            self._write({})

    def _table(self) -> dict[str, Any]:
        with contextlib.suppress(OSError):
            table = self._remembered.get(self._weights, _FACT, stamp_of(self._weights))
            return dict(table) if isinstance(table, dict) else {}
        return {}

    def _write(self, table: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._remembered.put(self._weights, _FACT, stamp_of(self._weights), table)


def _parsed(entry: Any) -> Left | None:
    try:
        until = entry["until"]
        return Left(
            str(entry["reason"]),
            float(entry["since"]),
            None if until is None else float(until),
            str(entry["certificate"]),
            str(entry.get("job", "")),
            int(entry.get("tries", 0)),
            float(entry.get("tried", 0.0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
