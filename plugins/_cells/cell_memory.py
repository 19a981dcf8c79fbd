"""What a sequence's memory can give back: cells of every layer, of windows only, or a state that has moved on.

Everything here follows from lengths, never from what a forward happened to overwrite, so that which prefix a prompt
keeps is the same with drafts and without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.plugins._cells.setting import CELL_BLOCK

BEFORE, BEYOND = 6, 40  # tokens before an edge, and after the last one


@dataclass(frozen=True, slots=True)
class CellMemory:
    """By default a cell for every token in every layer, which can be cut anywhere.

    With a `window`, some layers only see that many tokens back, and their cells stand in a ring of `ring` of them (0:
    there is room for all). With `running`, some layers keep a state instead of cells: it leads back to the last
    `snapshots` tokens of the forward before, and to places that were marked. With `placed` a ring's cells always stand
    at their position modulo its size.
    """

    window: int = 0
    ring: int = 0
    running: bool = False
    snapshots: int = 0
    placed: bool = False

    @property
    def restores(self) -> bool:
        """Whether no tail can be cut: the state before a block is copied, and written back after a rejection."""
        return self.running and not self.snapshots

    def unbroken(self, size: int) -> int | None:
        """How many cells a forward after `size` may add so that any of them can be cut; None: as many as fit.

        Where a ring ends in the middle of what is cut, the library goes on at its beginning, and every cell from there
        on stands elsewhere than without the cut: rows then differ in their last bits.
        """
        return self.ring - size % self.ring if self.ring and not self.placed else None

    def least(self, longest: int, margin: int, held: int = 0) -> int:
        """The fewest cells, besides none, that a cut may leave after there were `longest`.

        Forwards may have written `margin` cells beyond those, and windows hold nothing before position `held`.
        """
        if not self.window:
            return 0
        lost = max(held, longest + margin - self.ring if self.ring else 0)
        return lost + self.window - 1 if lost > 0 else 0

    @property
    def places(self) -> tuple[int, ...]:
        """Lengths of which the rows that follow go over the edge of the windows, over the ring's end, and beyond it."""
        edges = (self.window, self.ring) if self.window else ()
        beyond = (self.ring + BEYOND,) if self.ring else ()
        return tuple(edge - BEFORE for edge in edges if edge > BEFORE) + beyond

    def widths(self, widths: Sequence[int]) -> tuple[int, ...]:
        """Those of `widths` of which any tail can be cut, or taken back whole."""
        return tuple(w for w in widths if not self.running or self.restores or w <= 1 + self.snapshots)


CELLS = CellMemory()
MARKS = 2  # that are kept of a sequence: the last ones


def window_cells(window: int, block: int, cells: int) -> int:
    """How many of `cells` libllama gives to layers that see `window` tokens, for forwards of up to `block` tokens.

    Read in `llama_kv_cache_iswa`; tests and every cut see by what is forgotten whether it is so.
    """
    return -(-min(cells, window + block) // CELL_BLOCK) * CELL_BLOCK if window else cells
