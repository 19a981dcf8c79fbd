"""What forwards take in a lane whose layers other machines compute, seen once at load.

The first forward of a width asks the far ends about the shapes in it, a question at a time: over a network of 10 ms
that takes as long as three steps. Were an answer the first to pay for it, each width would seem to cost so much more,
and two of them would use up what trying may cost (docs/lab-notes.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pilotfish.plugins._cells.context import CellContext

Costs = tuple[tuple[int, int, float], ...]

SECONDS = 15.0  # after which no further width is begun
TIMED = 2  # forwards of each width that count, after one that does not
_TOKEN = 0


def width_costs(
    context: CellContext,
    widths: Sequence[int],
    *,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Costs:
    """(width, position, seconds) of forwards at the context's begin; the narrowest first, then the widest: what lies
    between is told from them. Leaves the cache empty. Raises EngineError."""
    plain, *blocks = widths
    found: list[tuple[int, int, float]] = []
    ends = clock() + seconds
    try:
        for width in (plain, *sorted(blocks, key=lambda width: (width & (width - 1) != 0, -width))):
            if found and clock() >= ends:
                break
            taken = [_forward(context, width, clock) for _ in range(1 + TIMED)]
            found.append((width, 0, min(taken[1:])))
    finally:
        context.clear()
    return tuple(sorted(found))


def _forward(context: CellContext, width: int, clock: Callable[[], float]) -> float:
    context.clear()
    started = clock()
    if width == 1:
        context.step(_TOKEN)
    else:
        context.forward([_TOKEN] * width, width)
    context.row(0)  # waits for the computation where the device works on its own
    return clock() - started
