"""A sequence of a recurrent or hybrid model: some layers keep a state that has moved on, instead of cells.

libllama keeps the states after the last few tokens of a forward where it was asked to (`n_rs_seq`), for architectures
that it lists: the tail of a forward can be cut once, back to one of them. From elsewhere only a copy of the state leads
back, taken by `mark`. Where there are no snapshots, one is taken before every block, and leads back to its beginning.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_memory import MARKS, CellMemory
from pilotfish.plugins._cells.context import Bytes, IdArray
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import last_words, lib

_BYTES = ctypes.POINTER(ctypes.c_uint8)
_STATES = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


class RunningContext(LlamaContext):
    """One sequence of a `llama_context` with states that move on."""

    def __init__(self, model: Any, handle: Any, params: Any, name: str, max_width: int, sequence: int) -> None:
        super().__init__(model, handle, params, name, max_width, sequence)
        self.memory = CellMemory(running=True, snapshots=lib.llama_n_rs_seq(handle))
        self._marks: dict[int, Bytes] = {}
        self._before: Bytes | None = None  # the state before the last block,
        self._began = -1  # which began with so many cells; negative where nothing leads back there
        self._went_back = float("inf")  # seconds, at the least

    @property
    def going_back(self) -> float | None:
        return self._went_back if self.memory.restores else None

    def mark(self) -> tuple[int, ...]:
        self._marks.pop(self.size, None)
        self._marks[self.size] = self._copied()
        for old in sorted(self._marks)[:-MARKS]:
            del self._marks[old]
        return tuple(sorted(self._marks))

    def forward(self, tokens: Sequence[int] | IdArray, width: int) -> None:
        if width > 1 and self.memory.restores:
            self._began = -1
            self._before = self._copied(self._before)
            self._began = self.size
        super().forward(tokens, width)

    def _copied(self, into: Bytes | None = None) -> Bytes:
        """A copy of the state, in the memory of an earlier one if it is as large."""
        size = lib.llama_state_seq_get_size_ext(self.handle, self.sequence, _STATES)
        data = into if into is not None and into.nbytes == size else np.empty(size, dtype=np.uint8)
        pointer = data.ctypes.data_as(_BYTES)
        if lib.llama_state_seq_get_data_ext(self.handle, pointer, size, self.sequence, _STATES) != size:
            raise EngineError(f"{self.name}: its state cannot be read: {last_words()}; repeat the request")
        return data

    def _remove(self, size: int) -> bool:
        if 0 < self.size - size < min(self.last, self.memory.snapshots + 1):
            self._forget_marks(size)
            return super()._remove(size)
        if self._before is not None and size == self._began == self.size - self.last:
            return self._go_back(size, self._before)
        return size in self._marks and self._go_back(size, self._marks[size])

    def _go_back(self, size: int, data: Bytes) -> bool:
        started, self._began = time.perf_counter(), -1  # another history may have a forward from there, too
        pointer = data.ctypes.data_as(_BYTES)
        if not lib.llama_state_seq_set_data_ext(self.handle, pointer, data.nbytes, self.sequence, _STATES):
            return False
        self._forget_marks(size)
        done = super()._remove(size)
        self._went_back = min(self._went_back, time.perf_counter() - started)
        return done

    def _forget_marks(self, size: int) -> None:
        self._marks = {at: data for at, data in self._marks.items() if at <= size}

    def _shift(self, keep: int, discard: int) -> bool:
        self._marks, self._began = {}, -1  # of a history that is no more
        return super()._shift(keep, discard)

    def _remove_all(self) -> None:
        super()._remove_all()
        self._marks, self._began = {}, -1
