"""The same history written in several ways, and every width after each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pilotfish.daemon.certify.lanes import classes
from pilotfish.daemon.lab.diagnose.diagnosis import PastFound, PastKind, Scores
from pilotfish.daemon.lab.diagnose.replaying import HistoryReplay
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import CellsPart, InspectsForwards
from pilotfish.hooks.protocols import ReadsLogits

Row = npt.NDArray[np.float32]


class Pasts:
    """Compares every past with single tokens and the plain width, which has to come first."""

    def __init__(self, replay: HistoryReplay, widths: Sequence[int], plain: int) -> None:
        self._replay, self._widths, self._plain = replay, widths, plain
        self._cells: tuple[CellsPart, ...] = ()
        self._row: Row | None = None  # the plain one
        self._digest = b""

    def look(self, kind: PastKind) -> PastFound:
        """Write the cells in this way and try every width."""
        replay = self._replay
        replay.build(kind)
        cells = self._difference(self._parts())
        rows = {width: self._rows(width, whole=kind is PastKind.SINGLE) for width in self._widths}
        if not self._digest:
            self._digest, self._row = rows[self._plain][0], self._first_row(self._plain)
        groups = classes(rows)
        shown = sorted({self._plain, replay.asked.other.width, *(group[0] for group in groups)})
        return PastFound(kind, groups, tuple(self._scores(rows[width], width) for width in shown), cells)

    def _rows(self, width: int, *, whole: bool) -> list[bytes]:
        """One forward's, or those of all proposals."""
        replay = self._replay
        if whole:
            return replay.walk(width)
        rows = replay.rows(replay.ids[replay.start : replay.start + width], width)
        replay.back()
        return rows

    def _scores(self, rows: Sequence[bytes], width: int) -> Scores:
        equal, row = rows[0] == self._digest, self._first_row(width)
        if row is None or self._row is None:
            return Scores(width, equal, None, None, None, None)
        below, best = np.argpartition(row, -2)[-2:]
        off = float(np.max(np.abs(row - self._row)))
        return Scores(width, equal, int(best), float(row[best]), float(row[best] - row[below]), off)

    def _first_row(self, width: int) -> Row | None:
        replay = self._replay
        if not isinstance(replay.probe, ReadsLogits):
            return None
        tokens = replay.ids[replay.start : replay.start + width]
        rows = np.frombuffer(replay.probe.logits(tokens, width), np.float32)
        replay.back()
        return rows[: replay.probe.n_vocab]

    def _parts(self) -> tuple[CellsPart, ...]:
        probe = self._replay.probe
        try:
            return probe.cells(self._replay.prompt - 1) if isinstance(probe, InspectsForwards) else ()
        except EngineError:  # one of another process that cannot
            return ()

    def _difference(self, parts: tuple[CellsPart, ...]) -> str:
        if not self._cells:
            self._cells = parts
        for ours, theirs in zip(self._cells, parts, strict=False):
            if ours != theirs:
                return _first_cell(ours, theirs, self._replay.prompt - 1)
        return ""


def _first_cell(ours: CellsPart, theirs: CellsPart, since: int) -> str:
    if ours.before != theirs.before:
        return f"{ours.name}, before cell {since}" if ours.cells else ours.name
    at = next((i for i, (a, b) in enumerate(zip(ours.cells, theirs.cells, strict=False)) if a != b), 0)
    return f"{ours.name}, cell {since + at}"
