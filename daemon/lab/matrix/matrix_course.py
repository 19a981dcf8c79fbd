"""The course of a matrix: every case in a process of its own, so that a crash costs its row and no other."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.lab.matrix.matrix_case import MatrixCase, MatrixRow, MatrixSize
from pilotfish.daemon.lab.matrix.matrix_child import MARK
from pilotfish.daemon.lab.matrix.matrix_stock import ask_stock
from pilotfish.daemon.lab.tiny_models.catalogue import architectures
from pilotfish.daemon.lab.tiny_models.making import tiny_model
from pilotfish.daemon.processes.threaded_child import ThreadedChild
from pilotfish.hooks.errors import PilotfishError

CHILD = "pilotfish.daemon.lab.matrix.matrix_child"
LIMIT = 600.0  # seconds for one row


@dataclass(slots=True)
class MatrixCourse:
    """The cases to be measured, in order; those of `known` are not measured again.

    `server` is a stock llama-server, which is asked about every model that it was not asked about.
    """

    cases: Sequence[MatrixCase]
    size: MatrixSize
    known: Sequence[MatrixRow] = ()
    server: Path | None = None
    starting: Callable[[str], None] = lambda what: None
    find: Callable[[MatrixCase], Path] = field(default=lambda case: _made(case))

    def run(self) -> Iterator[tuple[MatrixRow, bool]]:
        """Every row as it is done, and whether it is new."""
        known = {row.case: row for row in self.known if row.size == self.size}
        for case in self.cases:
            row = known.get(case)
            if row is not None and (row.stock or self.server is None):
                yield row, False
            else:
                yield self._row(case, row), True

    def _row(self, case: MatrixCase, row: MatrixRow | None) -> MatrixRow:
        self.starting(f"{case}: making it")
        try:
            path = self.find(case)
        except PilotfishError as error:
            return MatrixRow(case, self.size, failed=f"it could not be made: {error}")
        row = row or _Child(case, self.size, path, self.starting).row()
        if self.server is None:
            return row
        self.starting(f"{case}: stock")
        return replace(row, stock=ask_stock(self.server, path))


def read_rows(path: Path) -> list[MatrixRow]:
    """The rows in a log; lines that are none, such as one cut short, are passed over."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            rows.append(MatrixRow.from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            continue
    return rows


def _made(case: MatrixCase) -> Path:
    (architecture,) = architectures([case.architecture])
    return tiny_model(architecture, case.format)


class _Child:
    """One case measured elsewhere."""

    def __init__(self, case: MatrixCase, size: MatrixSize, path: Path, starting: Callable[[str], None]) -> None:
        self._case, self._size, self._path, self._starting = case, size, path, starting
        self._stage = "starting"
        self._said: dict[str, Any] = {}
        self._ended = threading.Event()

    def row(self) -> MatrixRow:
        """What it found, or how it failed."""
        job = {"case": asdict(self._case), "size": self._size.to_json(), "path": str(self._path)}
        command = [sys.executable, "-m", CHILD, json.dumps(job)]
        child = ThreadedChild(command, "matrix", self._hear, self._ended.set)
        in_time = self._ended.wait(LIMIT)
        words = child.last_words() if in_time else f"nothing within {LIMIT:.0f} s"
        child.stop()
        if "row" in self._said:
            return MatrixRow.from_json(self._said["row"])
        failed = self._said.get("failed") or words
        return MatrixRow(self._case, self._size, failed=f"{self._stage}: {failed}")

    def _hear(self, line: str) -> bool:
        """On the child's reading thread."""
        if not line.startswith(MARK):
            return False
        said = json.loads(line.removeprefix(MARK))
        if "stage" in said:
            self._stage = said["stage"]
            self._starting(f"{self._case}: {self._stage}")
        self._said.update(said)
        return True
