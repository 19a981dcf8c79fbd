"""A sequence of a model with sliding windows, in the small cache that libllama makes for them.

A tail is cut as anywhere else, as long as it does not reach back over the ring's end; where it does, the cells are read
out and put back at their places (`window_state.py`). What a window has given up is masked from there on, so a cut that
leaves the window whole is exact.
"""

from __future__ import annotations

from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_memory import CellMemory, window_cells
from pilotfish.plugins._cells.context import Bytes
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import lib
from pilotfish.plugins._llama.window_state import WindowState, parse_window


class WindowedContext(LlamaContext):
    """One sequence of a `llama_context` whose cache has a part for windows of `window` tokens."""

    def __init__(
        self, model: Any, handle: Any, params: Any, name: str, max_width: int, sequence: int, window: int
    ) -> None:
        super().__init__(model, handle, params, name, max_width, sequence)
        ring = window_cells(window, params.n_ubatch, self.cells)
        self.memory = CellMemory(window=window, ring=ring if ring < self.cells else 0)
        self._margin = params.n_ubatch  # cells that were written beyond `size` and cut again, at most
        self._restored = 0  # the first position that a state brought along
        self._longest = 0  # cells that were written, as far as cuts tell

    def _remove(self, size: int) -> bool:
        held = self._held()
        if held > 0 and size < held + self.memory.window - 1:
            return False
        if not super()._remove(size):
            return False
        ring = self.memory.ring
        return not ring or size % ring == 0 or size // ring == (self.size - 1) // ring or self._put_at_places()

    def _held(self) -> int:
        """The first position whose cell is there. Raises EngineError where the ring is not as large as expected."""
        held = max(self._restored, int(lib.llama_memory_seq_pos_min(self._memory, self.sequence)))
        ring, self._longest = self.memory.ring, max(self._longest, self.size)
        least = max(0, self._longest - ring) if ring else 0
        if not least <= held <= max(self._restored, least + self._margin if ring else 0):
            raise EngineError(
                f"{self.name}: its windows forgot what lies before {held} of {self._longest} tokens, which a cache of "
                f"{ring or self.cells} cells does not; this build of libllama is unknown here"
            )
        return held

    def _remove_all(self) -> None:
        super()._remove_all()
        self._restored = self._longest = 0

    def _put_at_places(self) -> bool:
        try:
            state = parse_window(self.state().data)
        except EngineError:
            return False
        super()._remove_all()
        return self._put(state)

    def _write_state(self, data: Bytes) -> bool:
        return self._put(parse_window(data))

    def _put(self, state: WindowState) -> bool:
        written = super()._write_state(state.written(self.memory.ring or self.cells))
        lib.llama_memory_seq_rm(self._memory, self.sequence, state.cells, -1)
        self._restored = int(state.window.positions[0]) if state.window.cells else 0
        self._longest = state.cells
        return written
