"""One sequence's cells and what they hold: fed, cut, put aside and written back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.context import CellContext, CellState


class CellSlot:
    """Keeps `history` (the ids that are history) beside the context's cells, which may also hold a forward's.

    `block` is the length of a prompt block in tokens; see `CellHistory`. Without `can_rollback` the cells cannot be
    cut, only forgotten.
    """

    def __init__(self, context: CellContext, block: int, *, exact: bool, can_rollback: bool) -> None:
        self.context = context
        self.history = CellHistory(block, exact=exact)
        self.can_rollback = can_rollback

    @property
    def tokens(self) -> array[int]:
        """The ids that are history."""
        return self.history.tokens

    @property
    def exact(self) -> bool:
        """Whether any common prefix may be kept."""
        return self.history.exact

    def reuse(self, prompt: Sequence[int]) -> int:
        """Keep what a session on `prompt` may keep, drop the rest; how many tokens were kept (never the last one)."""
        keep = self.history.reusable(prompt)
        if not self.can_rollback and keep < self.context.size:
            keep = 0
        return self.trim(keep)

    def feed_block(self, tokens: Sequence[int], last: int) -> int:
        """Feed the next block of `tokens[:last]`; how many of them are still to be fed."""
        start = len(self.history)
        end = self.history.block_end(start, last)
        if start < end:
            ids = tokens[start:end]
            self.context.feed(ids)
            self.history.add_block(ids)
        return last - end

    def keep(self, ids: Sequence[int]) -> None:
        """Take the first cells of the last forward, which hold `ids`, into history; cut its other cells.

        Raises EngineError when the cells cannot be cut, which a lane of width 1 never asks for.
        """
        self.history.add(ids)
        if not self.context.cut(len(self.history)):
            raise EngineError(f"{self.context.name}: the cache refused to give up rejected tokens; repeat the request")

    def trim(self, keep: int) -> int:
        """Cut history to `keep` tokens and the cells with it; what is left, 0 if the memory cannot cut its tail."""
        if not self.context.cut(keep):
            self.clear()
            return 0
        self.history.cut(keep)
        return keep

    def clear(self) -> None:
        """Forget everything."""
        self.context.clear()
        self.history.cut(0)

    def restore(self, history: CellHistory, state: CellState) -> None:
        """Hold what a slot of this model and setting held when its `state` was taken, instead of what is held.

        Raises EngineError when the library refuses; then nothing is held.
        """
        self.clear()
        self.context.restore(state)
        self.history = history.copy()
