"""A full context forgets: in the cells that there are, or by feeding again what is kept."""

from __future__ import annotations

from pilotfish.plugins._cells.slot import CellSlot


def shift(slot: CellSlot, keep: int, discard: int) -> bool:
    """Forget `discard` tokens behind the first `keep`. Whether the cells hold the rest; else all of it is to be fed.

    Raises EngineError when the library fails.
    """
    if not slot.context.shift(keep, discard):
        slot.clear()
        return False
    del slot.tokens[keep : keep + discard]
    return True
