"""Which free slot a prompt gets, by llama-server's rule: the one that holds the most of it, or has rested longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotfish.plugins._cells.cell_history import CellHistory


def choose(free: Mapping[int, CellHistory], prompt: Sequence[int], similarity: float) -> int:
    """The number of one of the `free` slots, which are in the order in which they were last used.

    The one with the longest beginning of `prompt`, if that is more than its share `similarity` and that is not 0.
    """
    shared = {number: history.shared(prompt) for number, history in free.items()}
    best = max(shared, key=lambda number: shared[number])
    return best if 0 < similarity < shared[best] / len(prompt) else next(iter(free))
