"""Which ids a sequence's cells hold, how they were written, and how many of them a new prompt may keep.

Keeping a prefix must not change an answer. Where the check at load found that cells do not depend on the block
that wrote them, any common prefix is kept. Elsewhere a cell is kept only if the new prompt, fed from the start,
would write it in the very block it was written in: same first and last position. So a kept cell holds the bits that
feeding the prompt would write, whichever request wrote it, whether it decoded with drafts or without, and whether
its state was put aside and written back meanwhile.

Where answers may depend on what was asked before (`[engine] prompts = "fast"`), any common prefix is kept as well.
Which that is depends on ids alone, and every width of a lane writes the same cells, so drafts change nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory


class CellHistory:
    """Ids in the order of their cells, from position 0 on.

    `block` is the length of a prompt block in tokens; blocks end at its multiples. With `any_prefix`, whatever is
    shared may be kept: cells do not depend on the block that wrote them, or answers may depend on earlier requests.
    Either way only as far as the `memory` can be cut, whose forwards have at most `margin` rows.
    """

    def __init__(self, block: int, *, any_prefix: bool, memory: CellMemory = CELLS, margin: int = 0) -> None:
        self.tokens = array("i")
        self.any_prefix = any_prefix
        self.marks: tuple[int, ...] = ()  # lengths to which a running state can be brought back
        self.block, self.memory, self.margin = block, memory, margin
        self._blocks: dict[int, int] = {}  # prompt blocks: first position -> end
        self._longest = self._held = 0  # cells that there were; the first position that windows still hold

    def __len__(self) -> int:
        return len(self.tokens)

    def shared(self, prompt: Sequence[int]) -> int:
        """How many leading ids are those of `prompt`."""
        n = min(len(self.tokens), len(prompt))
        if n == 0:
            return 0
        different = np.asarray(self.tokens[:n]) != np.asarray(prompt[:n], dtype=np.int32)
        return int(different.argmax()) if different.any() else n

    def reusable(self, prompt: Sequence[int]) -> int:
        """How many leading cells a session on `prompt` may keep; never that of its last token."""
        last = len(prompt) - 1
        common = min(self.shared(prompt), last)
        return self.there(common if self.any_prefix else self._whole_blocks(common, last))

    def there(self, keep: int) -> int:
        """To how many cells, of the first `keep`, the memory can be cut."""
        if self.memory.running:
            return keep if keep == len(self) else max((mark for mark in self.marks if mark <= keep), default=0)
        return keep if keep >= self.memory.least(self._longest, self.margin, self._held) else 0

    def _whole_blocks(self, common: int, last: int) -> int:
        keep = 0
        while keep < common:
            end = self.block_end(keep, last)
            if end > common or self._blocks.get(keep) != end:
                break
            keep = end
        return keep

    @property
    def trusted(self) -> int:
        """How many leading cells any later prompt may keep at most."""
        if self.any_prefix:
            return len(self.tokens)
        end = 0
        while end in self._blocks:
            end = self._blocks[end]
        return self.there(end)

    def block_end(self, start: int, last: int) -> int:
        """Where the prompt block that begins at `start` ends, if `last` tokens are to be fed."""
        return min((start // self.block + 1) * self.block, last)

    def add_block(self, ids: Sequence[int]) -> None:
        """One prompt block wrote the cells of `ids`."""
        start = len(self.tokens)
        self.add(ids)
        self._blocks[start] = len(self.tokens)

    def add(self, ids: Sequence[int]) -> None:
        """Decoding wrote the cells of `ids`."""
        self.tokens.extend(ids)
        self._longest = max(self._longest, len(self.tokens))

    def cut(self, size: int) -> None:
        """Only the first `size` cells are left."""
        del self.tokens[size:]
        self._blocks = {start: end for start, end in self._blocks.items() if end <= size}
        self.marks = tuple(mark for mark in self.marks if mark <= size)
        if not size:
            self._longest = self._held = 0

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The prompt blocks that wrote cells: first position and end."""
        return list(self._blocks.items())

    @classmethod
    def of(
        cls,
        tokens: array[int],
        blocks: Iterable[tuple[int, int]],
        block: int,
        *,
        any_prefix: bool,
        memory: CellMemory = CELLS,
        margin: int = 0,
    ) -> CellHistory:
        """One of a copy of the cells of `tokens`, of which prompt blocks wrote those in `blocks`: of windows it has
        only what is still seen."""
        history = cls(block, any_prefix=any_prefix, memory=memory, margin=margin)
        history.tokens, history._blocks = tokens, dict(blocks)
        history._longest = len(tokens)
        history._held = max(0, len(tokens) - memory.window) if memory.window else 0
        return history

    def copy(self) -> CellHistory:
        """One that goes its own way from here, with a copy of the cells."""
        twin = CellHistory.of(
            self.tokens[:],
            self._blocks.items(),
            self.block,
            any_prefix=self.any_prefix,
            memory=self.memory,
            margin=self.margin,
        )
        twin._held = max(twin._held, self._held)
        return twin
