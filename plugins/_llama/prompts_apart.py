"""Reading prompts in a context of stock's cache types, and moving the cells into the lane's.

A lane's keys and values have different types, which switches off libllama's tiled attention: long prompts take 1.5 to
2.2 times as long. Stock's types have it. The other context lives as long as one prompt is read, and is as large.

Cells that were read apart are others than those that the lane would write, so where a prompt is read must not depend on
how much memory happens to be free when it comes, with drafts or without. The first prompt that is worth it decides how
long prompts may be, as long as the model is loaded. Where the memory is gone later on, as any other failure, it costs
all later ones their speed.
"""

from __future__ import annotations

import bisect
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.plugins._cells.cell_memory import window_cells
from pilotfish.plugins._cells.context import Bytes, CellContext, CellState, IdArray
from pilotfish.plugins._cells.footprint import footprint_in
from pilotfish.plugins._cells.prompt_reading import is_worth
from pilotfish.plugins._cells.setting import CACHE_TYPES, CELL_BLOCK
from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.library import lib
from pilotfish.plugins._llama.model import make_context
from pilotfish.plugins._llama.sequence_state import moved, parse
from pilotfish.plugins._llama.sequences import is_running
from pilotfish.plugins._llama.window_state import moved_window, parse_window

log = logging.getLogger("pilotfish.verifiers")

STOCK_KINDS = (F16, F16)
COPIES = 3  # of the cells, at the same time: read out, converted, and those that were kept
SHARE = 0.5  # of what memory is free: the most that a prompt may take; conversations may have the rest


def prompts_apart(
    model: Any, pin: TargetPin, setting: EngineSetting, options: EngineOptions, free: Callable[[], int]
) -> PromptsApart | None:
    """A reader for a lane in `setting`; None where its types were asked for, are stock's, or have not 16 bits, and for
    models some of whose layers keep a state."""
    if options.cache_type_k or options.cache_type_v or is_running(model):
        return None
    kinds = CACHE_TYPES.get(setting.cache_type_k.lower(), 0), CACHE_TYPES.get(setting.cache_type_v.lower(), 0)
    if kinds == STOCK_KINDS or not {F16, BF16}.issuperset(kinds):
        return None
    stock = replace(setting, cache_type_k="f16", cache_type_v="f16")

    def sized(cells: int) -> EngineOptions:
        return replace(options, n_ctx=cells, slots=1)

    window = lib.llama_model_n_swa(model)
    # blocks of cells from which on a window's part of the cache grows no more
    ring = window_cells(window, options.batch_size, options.n_ctx) // CELL_BLOCK if window else 1

    @functools.cache
    def context_of(blocks: int) -> int:
        """Bytes of a context of so many blocks of cells."""
        return footprint_in(pin, stock, sized(blocks * CELL_BLOCK), "", windows=True).cache

    def need(cells: int) -> int:
        blocks = -(-cells // CELL_BLOCK)
        known = 1 if blocks <= ring else ring
        context = context_of(known) + (blocks - known) * (context_of(known + 1) - context_of(known))
        return context + COPIES * (context - context_of(1) + context_of(2) - context_of(1))

    return PromptsApart(
        lambda cells: make_context(model, pin, stock, sized(cells), 1), kinds, need, free, options.n_ctx
    )


class PromptsApart:
    """A `PromptReader`. `make(cells)` is a context of stock's types, `need(cells)` what one takes with the copies on
    the way, `free()` what there is, both in bytes; `kinds` are ggml's types of the lane's keys and values. Prompts have
    at most `most` tokens."""

    def __init__(
        self,
        make: Callable[[int], CellContext],
        kinds: tuple[int, int],
        need: Callable[[int], int],
        free: Callable[[], int],
        most: int,
    ) -> None:
        self._make, self._kinds, self._need, self._free, self._most = make, kinds, need, free, most
        self._longest: int | None = None  # tokens; not decided yet
        self._broken = self._remark = ""

    @property
    def where(self) -> str:
        """For a person."""
        if self._broken:
            return f"in the lane: {self._broken}"
        return f"with stock's cache types{self._remark}"

    def _decide(self, block: int) -> int:
        """Tokens of the longest prompt that is read apart; those that are have a whole block of `block`."""
        room = int(SHARE * self._free())
        pieces = range(1, -(-self._most // CELL_BLOCK) + 1)
        longest = CELL_BLOCK * bisect.bisect_right(pieces, room, key=lambda n: self._need(n * CELL_BLOCK))
        if longest < self._most:
            wanted = self._most if longest >= block else block
            why = f"a second context for {wanted} takes {self._need(wanted) >> 20} MiB, and may take {room >> 20}"
            if longest < block:
                raise MemoryError(why)
            self._remark = f" up to {longest} tokens, longer ones in the lane: {why}"
        return longest

    def begin(self, lane: CellContext, last: int) -> MovedReading | None:
        """A reading that continues what `lane` holds, where it pays and there is memory for it."""
        if self._broken or not is_worth(lane.size, last, lane.block):
            return None
        try:
            if self._longest is None:
                self._longest = self._decide(lane.block)
            return self._begun(lane, last) if last <= self._longest else None
        except OverflowError:  # what the lane holds cannot be said in stock's types, however often it is read
            return None
        except (PilotfishError, OSError, MemoryError) as error:
            self.failed(error)
            return None

    def _begun(self, lane: CellContext, last: int) -> MovedReading:
        need, free = self._need(last), self._free()
        if need > free:
            raise MemoryError(f"a second context for {last} tokens takes {need >> 20} MiB, {free >> 20} are left")
        return MovedReading(self._make(last), lane, self._kinds)

    def failed(self, error: Exception) -> None:
        """The lane reads from now on."""
        self._broken = str(error) or type(error).__name__
        log.warning("prompts are read in the lane from now on: %s", self._broken)


class MovedReading:
    """A `Reading` in `context`, which it owns. Raises EngineError or OverflowError when what `lane` holds cannot be
    taken along."""

    def __init__(self, context: CellContext, lane: CellContext, kinds: tuple[int, int]) -> None:
        self._context, self._lane, self._kinds = context, lane, kinds
        try:
            self._kept = lane.state()
            if lane.size:
                there = self._moved(self._kept, STOCK_KINDS, context.state())
                context.restore(CellState(lane.size, there))
        except BaseException:
            context.close()
            raise

    def feed(self, ids: Sequence[int] | IdArray) -> None:
        """Read a block."""
        self._context.feed(ids)

    def finish(self) -> None:
        """Move the cells. Those that the lane's context held already keep every bit."""
        try:
            read = self._context.state()
            self.close()  # its memory goes before the copies are made
            state = CellState(read.cells, self._moved(read, self._kinds, self._kept))
        except (OverflowError, MemoryError) as error:
            raise EngineError(f"{self._lane.name}: cells could not be moved: {error}; feed the prompt again") from error
        finally:
            self.close()
        try:
            self._lane.restore(state)
        except EngineError:
            with suppress(EngineError):
                if self._kept.cells:
                    self._lane.restore(self._kept)
            raise

    def _moved(self, source: CellState, kinds: tuple[int, int], into: CellState) -> Bytes:
        if self._lane.memory.window:
            return moved_window(parse_window(source.data), kinds, parse_window(into.data))
        return moved(parse(source.data), kinds, parse(into.data))

    def close(self) -> None:
        """Free the context."""
        self._context.close()
