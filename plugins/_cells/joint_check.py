"""The check at load for slots: which forwards of several sequences give each the rows that it has alone.

Every sequence gets a random prefix of its own length, one of them beyond 256 cells, and random ids after it: once in
single steps, and once in forwards that it shares with others, for the lane's widths of WIDTHS and each number of
sequences that there is room for. A number stays only if every row of every sequence equals its single step's bit for
bit; a width's largest number is what is kept, and no smaller one may have failed. Narrow widths come first, so that
they are what is known where time runs out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from pilotfish.plugins._cells.context import CellContext, IdArray, digest_of
from pilotfish.plugins._cells.joint_forward import JointForward

SHORT, LONG = 24, 262  # prefixes; the second sequence's is long, and each a little longer than the one's before
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # few, because a large model has to be loaded in bearable time
ROWS = 8  # at least; as many as the widest block has, if those are more
BUDGET = 60.0  # seconds, for a machine under load
_SEED = 13

Together = dict[int, int]
"""width of the lane -> how many sequences may have a block of that width in one forward, if more than one may"""


class NoTimeLeft(Exception):
    """The budget is spent. `found` is what was compared until then."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Together = {}


def check_together(
    joint: JointForward, contexts: Sequence[CellContext], widths: Sequence[int], *, budget: float = BUDGET
) -> Together:
    """Try the widths with every number of sequences. Leaves the caches empty. Raises EngineError or NoTimeLeft."""
    widths = [width for width in widths if width in WIDTHS and 2 * width <= joint.capacity]
    rows = max((ROWS, *widths))
    if not widths or contexts[0].cells < SHORT + len(contexts) + rows:
        return {}
    check = _JointCheck(joint, contexts[: joint.capacity], rows, time.monotonic() + budget)
    found: Together = {}
    try:
        check.begin()
        for width in widths:
            if (many := check.most(width)) > 1:
                found[width] = many
    except NoTimeLeft as ended:
        ended.found = found
        raise
    finally:
        for context in contexts:
            context.clear()
    return found


class _JointCheck:
    def __init__(self, joint: JointForward, contexts: Sequence[CellContext], rows: int, deadline: float) -> None:
        self._joint, self._contexts, self._rows, self._deadline = joint, contexts, rows, deadline
        n_vocab, cells = contexts[0].n_vocab, contexts[0].cells
        long = LONG if LONG + len(contexts) + rows <= cells else SHORT
        self._lengths = [(long if i == 1 else SHORT) + i for i in range(len(contexts))]
        random = np.random.default_rng(_SEED)
        self._ids: list[IdArray] = [
            random.integers(0, n_vocab, length + rows, dtype=np.int32) for length in self._lengths
        ]
        self._alone: list[list[bytes]] = []

    def begin(self) -> None:
        """Feed every prefix, and see the rows that each sequence has alone."""
        for context, ids, length in zip(self._contexts, self._ids, self._lengths, strict=True):
            context.clear()
            while (at := context.size) < length:
                context.feed(ids[at : min(at + context.block, length)])
            rows = []
            for token in ids[length:]:
                self._tick()
                context.step(int(token))
                rows.append(digest_of(context.row(0)))
            self._alone.append(rows)

    def most(self, width: int) -> int:
        """How many sequences, from the first on, have their own rows in forwards of `width` of each; 1: no two."""
        together = min(len(self._contexts), self._joint.capacity // width)
        return next((many - 1 for many in range(2, together + 1) if not self._same(many, width)), together)

    def _same(self, many: int, width: int) -> bool:
        for context, length in zip(self._contexts, self._lengths, strict=True):
            context.cut(length)
        return all(self._same_block(many, width, at) for at in range(0, self._rows - width + 1, width))

    def _same_block(self, many: int, width: int, at: int) -> bool:
        self._tick()
        starts = [length + at for length in self._lengths[:many]]
        blocks = [ids[start : start + width].tolist() for ids, start in zip(self._ids, starts, strict=False)]
        self._joint.run(list(zip(self._contexts, blocks, strict=False)), width)
        return all(
            digest_of(context.row(i)) == alone[at + i]
            for context, alone in zip(self._contexts[:many], self._alone, strict=False)
            for i in range(width)
        )

    def _tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise NoTimeLeft
