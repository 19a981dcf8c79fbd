"""The check at load: which block widths give rows that are bit-equal to single steps, by real forwards.

For each context length a fixed random prefix is fed, then random ids follow it (ROWS, or as many as the widest
block takes), once in single steps and
once in blocks of every candidate width, cutting back to the prefix in between. A width stays only if all its
rows, at every offset in the block and at every length, equal the single steps' rows bit for bit. The lengths
lie below and above 256 cells, where ggml's attention changes its code. Random ids separate classes of
kernels better than text does.

A second question decides how far an earlier request's cache may be reused: are cells written by narrow
decoding blocks the same as cells written by prompt blocks?

This is a check of minutes-old settings in seconds, not a certificate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pilotfish.plugins._cells.context import CellContext, IdArray, Logits

LENGTHS = (64, 270)
ROWS = 16  # at least
CELLS = 32  # rewritten in narrow blocks for the second question; at 270 one of them straddles cell 256
BUDGET = 60.0  # seconds, for a machine under load; a quiet one needs two for a 135M model
_SEED = 11


@dataclass(frozen=True, slots=True)
class LaneCheck:
    """`widths` always holds 1. `exact_cache`: cells do not depend on the block that wrote them.

    `complete` is False when time ran out, so that the result is not worth remembering.
    """

    widths: tuple[int, ...]
    exact_cache: bool
    reason: str
    complete: bool = True


class _OutOfTime(Exception):
    """The budget is spent; what was compared stays."""


def check(context: CellContext, candidates: tuple[int, ...], *, budget: float = BUDGET) -> LaneCheck:
    """Try the candidate widths. Leaves the cache empty. Raises EngineError."""
    return _Check(context, max(ROWS, *candidates), budget).run(candidates)


class _Check:
    def __init__(self, context: CellContext, rows: int, budget: float) -> None:
        self._context, self._rows = context, rows
        self._deadline = time.monotonic() + budget
        ids = np.random.default_rng(_SEED).integers(0, context.n_vocab, max(LENGTHS) + rows, dtype=np.int32)
        self._ids: IdArray = ids
        self._reasons: list[str] = []

    def run(self, candidates: tuple[int, ...]) -> LaneCheck:
        lengths = [length for length in LENGTHS if length + self._rows <= self._context.cells]
        if len(lengths) < len(LENGTHS) and self._context.cells > 256:
            return LaneCheck((1,), False, f"a context of {self._context.cells} tokens leaves no room for the check")
        widths, exact, complete = set(candidates), True, True
        self._context.clear()
        try:
            for length in lengths:
                widths, exact = self._at(length, widths, exact)
        except _OutOfTime:
            widths, exact, complete = set(), False, False
            self._reasons.append("the check ran out of time")
        finally:
            self._context.clear()
        return LaneCheck((1, *sorted(widths)), exact and bool(widths), "; ".join(self._reasons), complete)

    def _at(self, length: int, widths: set[int], exact: bool) -> tuple[set[int], bool]:
        """The widths and the exactness of cells that survive one context length."""
        single = self._prefix_and_single_steps(length)
        kept = {width for width in sorted(widths) if self._same_rows(length, width, single)}
        if lost := widths - kept:
            self._reasons.append(f"width {_list(lost)} differs from single steps after {length} tokens")
        if exact and kept:
            exact = self._same_cells(length, max(kept), single[0])
            if not exact:
                self._reasons.append(f"cells written by narrow blocks differ after {length} tokens")
        return kept, exact

    def _prefix_and_single_steps(self, length: int) -> list[Logits]:
        """The prefix of the length before is kept: prompt blocks of 64 and 206, or shorter, then stand for any."""
        self._context.cut(min(LENGTHS))
        while (at := self._context.size) < length:
            self._context.feed(self._ids[at : min(at + self._context.block, length)])
        rows = []
        for i in range(length, length + self._rows):
            self._tick()
            self._context.step(int(self._ids[i]))
            rows.append(self._context.row(0).copy())
        return rows

    def _same_rows(self, length: int, width: int, single: list[Logits]) -> bool:
        self._context.cut(length)
        return all(np.array_equal(self._context.row(i), single[at + i]) for at, i in self._blocks(length, width))

    def _blocks(self, length: int, width: int) -> Iterator[tuple[int, int]]:
        for at in range(0, self._rows - width + 1, width):
            self._tick()
            self._context.forward(self._ids[length + at : length + at + width], width)
            for i in range(width):
                yield at, i

    def _same_cells(self, length: int, width: int, expected: Logits) -> bool:
        """Write the prefix's last CELLS cells in blocks of `width`; the single step after it must not notice."""
        start = length - CELLS
        self._context.cut(start)
        for at in range(start, length, width):
            self._tick()
            block = self._ids[at : min(at + width, length)]
            self._context.forward(block, len(block))
        self._context.step(int(self._ids[length]))
        return np.array_equal(self._context.row(0), expected)

    def _tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise _OutOfTime


def _list(widths: set[int]) -> str:
    return ", ".join(map(str, sorted(widths)))
