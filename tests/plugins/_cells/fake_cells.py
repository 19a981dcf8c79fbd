"""A context of cells without an engine: each cell holds its id and how long the block was that wrote it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_memory import CELLS, MARKS, CellMemory
from pilotfish.plugins._cells.context import CellState
from pilotfish.plugins._cells.slot import CellSlot

BYTES = 8  # of one cell
BLOCK = 4


class FakeContext:
    """What a `CellSlot` needs of a `CellContext`. `written` are the cells; `broken` names a call that fails."""

    name = "fake"
    max_width = 16

    def __init__(self, broken: str = "", memory: CellMemory = CELLS) -> None:
        self.memory = memory
        self.written: list[tuple[int, int]] = []
        self.broken = broken
        self.copies = 0
        self.marks: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return len(self.written)

    def feed(self, tokens: Sequence[int]) -> None:
        self.written += [(token, len(tokens)) for token in tokens]

    def cut(self, size: int) -> bool:
        del self.written[size:]
        return True

    def mark(self) -> tuple[int, ...]:
        self.marks = tuple(sorted({*(mark for mark in self.marks if mark <= self.size), self.size}))[-MARKS:]
        return self.marks

    def clear(self) -> None:
        self.written = []

    def state_size(self) -> int:
        return BYTES * self.size

    def state(self) -> CellState:
        if self.broken == "state":
            raise EngineError("the cells cannot be read")
        if self.broken == "memory":
            raise MemoryError
        self.copies += 1
        return CellState(self.size, np.array(self.written, np.int32).reshape(-1).view(np.uint8))

    def restore(self, state: CellState) -> None:
        self.clear()
        if self.broken == "restore":
            raise EngineError("the cells were refused")
        self.written = [(int(token), int(width)) for token, width in state.data.view(np.int32).reshape(-1, 2)]


def slot(*, exact: bool = True, broken: str = "", memory: CellMemory = CELLS) -> CellSlot:
    """An empty slot of a fake context, with prompt blocks of BLOCK tokens."""
    return CellSlot(FakeContext(broken, memory), BLOCK, exact=exact, can_rollback=True)  # type: ignore[arg-type]


def written(slot: CellSlot) -> list[tuple[int, int]]:
    """The cells of its fake context."""
    assert isinstance(slot.context, FakeContext)
    return slot.context.written


def answer(slot: CellSlot, prompt: Sequence[int], n: int) -> list[int]:
    """Feed `prompt` but for what the slot keeps of it, and decode `n` tokens one by one; the cells' ids then.

    The pending token has no cell, as in a session.
    """
    slot.reuse(prompt)
    while slot.feed_block(prompt, len(prompt) - 1) > 0:
        pass
    for token in [prompt[-1], *range(900, 900 + n)][:n]:
        slot.context.feed([token])
        slot.keep([token])
    return list(slot.tokens)
