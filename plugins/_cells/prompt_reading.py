"""Prompts that are read outside the lane's context: where the engine reads fastest, and answers are not decoded.

Which way a prompt is read depends on lengths alone, never on time, so that the cells are the same with speculation
on and off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilotfish.plugins._cells.context import CellContext, IdArray

WORTH = 192  # tokens


def is_worth(kept: int, last: int) -> bool:
    """Whether reading `last` - `kept` tokens apart pays for making the other context and moving `last` cells.

    What a token gains grows with the cells before it and with the layers, and so does what moving costs: the ratio is
    a number of tokens. Measured, beside reading in the lane (135M, Q4_0, two cores): 64 tokens 0.97 times as fast on
    their own, 0.84 after 1,000; 128 tokens 1.01 and 1.04; 192 tokens 1.15 on their own.
    """
    return last - kept >= WORTH


class Reading(Protocol):
    """One prompt on its way."""

    def feed(self, ids: Sequence[int] | IdArray) -> None:
        """Read a block. Raises EngineError."""
        ...

    def finish(self) -> None:
        """Put all cells into the lane's context; whatever happens, the reading is over. Raises EngineError: then the
        lane's context holds what it held before, or nothing."""
        ...

    def close(self) -> None:
        """Give up; the lane's context holds what it held before. A second call does nothing."""
        ...


class PromptReader(Protocol):
    """Reads prompts apart, where that can be done."""

    obstacle: str  # why the last prompt that was worth it was read in the lane; empty when it was not

    def begin(self, lane: CellContext, last: int) -> Reading | None:
        """Continue what `lane` holds up to `last` cells; None: let the lane read. Raises nothing."""
        ...

    def failed(self, error: Exception) -> None:
        """A reading ended with `error`: no other is begun."""
        ...
