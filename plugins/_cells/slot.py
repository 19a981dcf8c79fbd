"""The one sequence's cells: which ids they hold, how they were written, and what a new prompt may keep of them.

Keeping a prefix must not change an answer. Where the check at load found that cells do not depend on the block
that wrote them, any common prefix is kept. Elsewhere a cell is kept only if the new prompt, fed from the start,
would write it in the very block it was written in: same first and last position. Then an answer is the same
with and without an earlier request, at the price of feeding some tokens again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import shared_prefix
from pilotfish.plugins._cells.context import CellContext


class CellSlot:
    """Keeps `tokens` (the ids that are history) beside the context's cells, which may also hold a forward's.

    `block` is the length of a prompt block in tokens; blocks end at its multiples, counted from position 0.
    """

    def __init__(self, context: CellContext, block: int, *, exact: bool, can_rollback: bool) -> None:
        self.context = context
        self.tokens = array("i")
        self._block = block
        self.exact = exact
        self.can_rollback = can_rollback
        self._written: dict[int, int] = {}  # prompt blocks: first position -> end

    def reuse(self, prompt: Sequence[int]) -> int:
        """Keep what a session on `prompt` may keep, drop the rest; how many tokens were kept (never the last one)."""
        last = len(prompt) - 1
        common = shared_prefix(self.tokens, prompt[:last])
        keep = common if self.exact else self._whole_blocks(common, last)
        if not self.can_rollback and keep < self.context.size:
            keep = 0
        return self.trim(keep)

    def _whole_blocks(self, common: int, last: int) -> int:
        keep = 0
        while keep < common:
            end = self._block_end(keep, last)
            if end > common or self._written.get(keep) != end:
                break
            keep = end
        return keep

    def feed_block(self, tokens: Sequence[int], last: int) -> int:
        """Feed the next block of `tokens[:last]`; how many of them are still to be fed."""
        start = len(self.tokens)
        end = self._block_end(start, last)
        if start < end:
            ids = tokens[start:end]
            self.context.feed(ids)
            self.tokens.extend(ids)
            self._written[start] = end
        return last - end

    def _block_end(self, start: int, last: int) -> int:
        return min((start // self._block + 1) * self._block, last)

    def keep(self, ids: Sequence[int]) -> None:
        """Take the first cells of the last forward, which hold `ids`, into history; cut its other cells.

        Raises EngineError when the cells cannot be cut, which a lane of width 1 never asks for.
        """
        self.tokens.extend(ids)
        if not self.context.cut(len(self.tokens)):
            raise EngineError(f"{self.context.name}: the cache refused to give up rejected tokens; repeat the request")

    def trim(self, keep: int) -> int:
        """Cut history to `keep` tokens and the cells with it; what is left, 0 if the memory cannot cut its tail."""
        if not self.context.cut(keep):
            self.clear()
            return 0
        del self.tokens[keep:]
        self._written = {start: end for start, end in self._written.items() if end <= keep}
        return keep

    def clear(self) -> None:
        """Forget everything."""
        self.context.clear()
        del self.tokens[:]
        self._written.clear()
