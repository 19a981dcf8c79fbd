"""The account and what happened, kept over restarts: a small SQLite file in the state folder, for thirty days.

Numbers and names only: no prompt, no answer, no token. One thread touches the file; whatever is wrong with it is said
once and costs the history, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.control.happenings import KEPT, Happening
from pilotfish.daemon.core.totals import Totals
from pilotfish.daemon.dashboard.account import HOUR, MOST, MOST_PROCESSES, Cell, Seen

log = logging.getLogger("pilotfish.dashboard")

FILE_NAME = "history.sqlite"
_FORMAT = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS account (
    hour INTEGER, model TEXT, client TEXT, requests INTEGER, committed INTEGER, drafted INTEGER, accepted INTEGER,
    rounds INTEGER, seconds REAL, saved_seconds REAL, PRIMARY KEY (hour, model, client)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processes (process TEXT PRIMARY KEY, at REAL, clients TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS happenings (at REAL, kind TEXT, model TEXT, text TEXT);
PRAGMA user_version = {_FORMAT};
"""
_FIGURES = ("requests", "committed", "drafted", "accepted", "rounds", "seconds", "saved_seconds")


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """What a file holds."""

    cells: dict[Cell, Totals]
    processes: dict[str, Seen]
    happenings: list[Happening]


@dataclass(frozen=True, slots=True)
class News:
    """What is to be written. `first` is the first hour that stays.

    `added` are amounts, not sums: another daemon may have the same folder, and what could not be read at the start is
    in the file all the same.
    """

    first: int
    added: dict[Cell, Totals]
    processes: dict[str, Seen]
    happenings: Sequence[Happening]


class AccountHistory:
    """Calls block; make them from one thread at a time. `trouble` says why nothing is kept; empty when it is."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME
        self.trouble = ""

    def load(self) -> KeptHistory:
        """Everything that is kept. A file that cannot be read is put aside, and a new one begun. Raises nothing."""
        try:
            return self._load()
        except (sqlite3.DatabaseError, ValueError, TypeError, LookupError, AttributeError) as error:
            if _is_outer(error):
                self._fail(error)
                return KeptHistory({}, {}, [])
            aside = self.path.with_suffix(".broken")
            log.warning("%s: %s; it is put aside as %s, and the history begins anew", self.path, error, aside.name)
            with contextlib.suppress(OSError):
                self.path.replace(aside)
        except OSError as error:
            self._fail(error)
        return KeptHistory({}, {}, [])

    def save(self, news: News) -> bool:
        """Write what changed and let go of what is too old; whether that was done. Raises nothing."""
        try:
            with self._open() as database:
                self._write(database, news)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            return False
        self.trouble = ""
        return True

    def _load(self) -> KeptHistory:
        if not self.path.exists():
            return KeptHistory({}, {}, [])
        with self._open() as database:
            columns = ", ".join(_FIGURES)
            rows = database.execute(f"SELECT hour, model, client, {columns} FROM account").fetchall()
            cells = {Cell(int(row[0]), str(row[1]), str(row[2])): Totals(*row[3:]) for row in rows}
            processes: dict[str, Seen] = {
                str(process): {name: Totals.from_json(found) for name, found in json.loads(clients).items()}
                for process, clients in database.execute("SELECT process, clients FROM processes ORDER BY at")
            }
            happened = database.execute("SELECT at, kind, model, text FROM happenings ORDER BY at").fetchall()
            return KeptHistory(cells, processes, [Happening(*row) for row in happened[-KEPT:]])

    def _write(self, database: sqlite3.Connection, news: News) -> None:
        marks = ", ".join("?" * (3 + len(_FIGURES)))
        sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in _FIGURES)
        database.executemany(
            f"INSERT INTO account VALUES ({marks}) ON CONFLICT (hour, model, client) DO UPDATE SET {sums}",
            [
                (cell.hour, cell.model, cell.client, *(getattr(totals, name) for name in _FIGURES))
                for cell, totals in news.added.items()
            ],
        )
        database.executemany(
            "REPLACE INTO processes VALUES (?, ?, ?)",
            [(process, time.time(), json.dumps(_clients(seen))) for process, seen in news.processes.items()],
        )
        database.executemany(
            "INSERT INTO happenings VALUES (:at, :kind, :model, :text)", [asdict(each) for each in news.happenings]
        )
        oldest = news.first * HOUR
        database.execute("DELETE FROM account WHERE hour < ?", (news.first,))
        database.execute(
            "DELETE FROM account WHERE hour <= (SELECT hour FROM account ORDER BY hour DESC LIMIT 1 OFFSET ?)", (MOST,)
        )
        database.execute("DELETE FROM processes WHERE at < ?", (oldest,))
        database.execute(
            "DELETE FROM processes WHERE at < (SELECT at FROM processes ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (MOST_PROCESSES - 1,),
        )
        database.execute("DELETE FROM happenings WHERE at < ?", (oldest,))
        database.execute(
            "DELETE FROM happenings WHERE rowid <= (SELECT rowid FROM happenings ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
            (KEPT,),
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        with contextlib.closing(sqlite3.connect(self.path, timeout=5)) as database:
            database.executescript(_SCHEMA)
            with database:
                yield database

    def _fail(self, error: Exception) -> None:
        if not self.trouble:
            log.warning("%s: no history is kept: %s; check its owner and mode, and the disk", self.path, error)
        self.trouble = f"{self.path}: {error}"


def _is_outer(error: Exception) -> bool:
    """Whether it is about what surrounds a file, such as a lock or a full disk, and not about what is in it."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # Python's own errors have none
    return isinstance(error, sqlite3.OperationalError) and code & 0xFF != sqlite3.SQLITE_ERROR


def _clients(seen: Seen) -> dict[str, Any]:
    return {name: totals.to_json() for name, totals in seen.items()}
