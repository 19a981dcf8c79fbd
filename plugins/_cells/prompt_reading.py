"""Prompts that are read outside the lane's context: where the engine reads fastest, and answers are not decoded.

Which way a prompt is read depends on lengths alone, never on time or on the memory of the moment, so that the cells are
the same with speculation on and off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilotfish.plugins._cells.context import CellContext, IdArray


def is_worth(kept: int, last: int, block: int) -> bool:
    """Whether reading the tokens from `kept` to `last` apart pays for making the other context and moving the cells.

    It does from one whole block on, of `block` tokens at a multiple of it. Shorter ones gain only where their length is
    a multiple of the engine's own tiles: measured, blocks of 256 were read 1.6 times as fast as in the lane, and blocks
    of 200 and 232 as fast.
    """
    first_whole = -(-kept // block) * block
    return first_whole + block <= last


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

    @property
    def where(self) -> str:
        """Where they are read, and why not elsewhere, for a person; safe from any thread."""
        ...

    def begin(self, lane: CellContext, last: int) -> Reading | None:
        """Continue what `lane` holds up to `last` cells; None: let the lane read. Raises nothing."""
        ...

    def failed(self, error: Exception) -> None:
        """A reading ended with `error`: no other is begun."""
        ...
