"""One sequence's cells and what they hold: fed, cut, put aside and written back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.context import CellContext, CellState
from pilotfish.plugins._cells.prompt_reading import PromptReader, Reading


class CellSlot:
    """Keeps `history` (the ids that are history) beside the context's cells, which may also hold a forward's.

    `block` is the length of a prompt block in tokens; see `CellHistory`. Without `can_rollback` the cells cannot be
    cut, only forgotten. `widths` are the lane's.
    """

    def __init__(
        self, context: CellContext, block: int, *, exact: bool, can_rollback: bool, widths: Sequence[int] = (1,)
    ) -> None:
        self.context = context
        self.exact = exact
        self._widths = widths
        memory, margin = context.memory, context.max_width
        self.history = CellHistory(block, any_prefix=exact, memory=memory, margin=margin)
        self.can_rollback = can_rollback
        self.reader: PromptReader | None = None  # for prompts that are not read in `context`
        self._reading: Reading | None = None

    @property
    def tokens(self) -> array[int]:
        """The ids that are history."""
        return self.history.tokens

    def reuse(self, prompt: Sequence[int]) -> int:
        """Keep what a session on `prompt` may keep, drop the rest; how many tokens were kept (never the last one)."""
        keep = self.history.reusable(prompt)
        if not self.can_rollback and keep < self.context.size:
            keep = 0
        return self.trim(keep)

    def feed_block(self, tokens: Sequence[int], last: int) -> int:
        """Feed the next block of `tokens[:last]`; how many of them are still to be fed.

        Between two blocks history may hold ids whose cells are elsewhere; `settle` brings them here.
        """
        start = len(self.history)
        end = self.history.block_end(start, last)
        if start < end:
            self._feed(tokens[start:end], last)
        if len(self.history) == last:
            self.settle()
        return last - len(self.history)

    def _feed(self, ids: Sequence[int], last: int) -> None:
        if self._reading is None and self.reader is not None:
            self._reading = self.reader.begin(self.context, last)
        if self._reading is None:
            self.context.feed(ids)
            self.history.add_block(ids)
            if self.context.memory.running and self.can_rollback:
                self.history.marks = self.context.mark()
            return
        try:
            self._reading.feed(ids)
            self.history.add_block(ids)
        except EngineError as error:
            self._give_up_reading(error)

    def settle(self) -> None:
        """End a reading elsewhere: its cells come here, or, if they cannot, its ids leave history."""
        if self._reading is None:
            return
        try:
            self._reading.finish()
            self._reading = None
        except EngineError as error:
            self._give_up_reading(error)

    def _give_up_reading(self, error: EngineError) -> None:
        if self._reading is not None and self.reader is not None:
            self._reading.close()
            self.reader.failed(error)
        self._reading = None
        self.history.cut(self.context.size)

    def keep(self, ids: Sequence[int]) -> bool:
        """Take the first cells of the last forward, which hold `ids`, into history; cut its other cells.

        False where `ids` had to be forwarded again for that: the rows are gone then. Raises EngineError when the cells
        cannot be cut, which a lane of width 1 never asks for.
        """
        self.history.add(ids)
        if self.context.cut(len(self.history)):
            return True
        if self.context.feed_again(ids, self._widths):
            return False
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
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        self.context.clear()
        self.history.cut(0)

    def restore(self, history: CellHistory, state: CellState) -> None:
        """Hold what a slot of this model and setting held when its `state` was taken, instead of what is held.

        Raises EngineError when the library refuses; then nothing is held.
        """
        self.clear()
        self.context.restore(state)
        self.history = history.copy()
