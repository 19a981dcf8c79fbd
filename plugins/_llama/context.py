"""A libllama context with one sequence, or several of one cache stream each."""

from __future__ import annotations

import ctypes
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import CellsPart
from pilotfish.plugins._cells.context import Bytes, digest_of
from pilotfish.plugins._cells.library_context import LibraryContext
from pilotfish.plugins._cells.setting import CELL_BLOCK
from pilotfish.plugins._llama import shifting
from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.library import last_words, lib
from pilotfish.plugins._llama.sequence_state import UnknownLayout, parse

_BYTES = ctypes.POINTER(ctypes.c_uint8)


class LlamaContext(LibraryContext):
    """One sequence of a `llama_context`."""

    def __init__(self, model: Any, handle: Any, params: Any, name: str, max_width: int, sequence: int) -> None:
        self._memory = lib.llama_get_memory(handle)
        self._model, self._params = model, params
        self._alone = params.n_seq_max == 1
        super().__init__(
            lib,
            handle,
            name,
            cells=lib.llama_n_ctx_seq(handle),
            n_vocab=lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)),
            block=params.n_batch,
            max_width=max_width,
            sequence=sequence,
        )

    def _remove(self, size: int) -> bool:
        return bool(lib.llama_memory_seq_rm(self._memory, self.sequence, size, -1))

    def _remove_all(self) -> None:
        if self._alone:
            lib.llama_memory_clear(self._memory, False)
        else:
            lib.llama_memory_seq_rm(self._memory, self.sequence, -1, -1)

    def _state_size(self) -> int:
        return int(lib.llama_state_seq_get_size(self.handle, self.sequence))

    def parts(self, since: int) -> tuple[CellsPart, ...]:
        try:
            state = parse(self.state().data)
        except UnknownLayout:  # windows, running states
            return super().parts(since)
        sides = zip(("keys", "values"), state.sides, strict=True)
        return tuple(
            CellsPart(f"layer {layer} {side}", digest_of(part.rows[:since]), tuple(map(digest_of, part.rows[since:])))
            for side, parts in sides
            for layer, part in enumerate(parts)
        )

    def _read_state(self, data: Bytes) -> int:
        return int(lib.llama_state_seq_get_data(self.handle, data.ctypes.data_as(_BYTES), data.nbytes, self.sequence))

    def _write_state(self, data: Bytes) -> bool:
        return bool(lib.llama_state_seq_set_data(self.handle, data.ctypes.data_as(_BYTES), data.nbytes, self.sequence))

    @property
    def can_shift(self) -> bool:
        return bool(lib.llama_memory_can_shift(self._memory))

    def _shift(self, keep: int, discard: int) -> bool:
        if self._params.type_k != BF16:
            return shifting.forget(self._memory, self.sequence, keep, discard)
        beside = self._beside(self.size - keep - discard + 1)
        try:
            return shifting.turned_beside(self.handle, self.sequence, beside, self.size, keep, discard)
        finally:
            lib.llama_free(beside)

    def _beside(self, cells: int) -> Any:
        """An empty context of `cells` cells with f16 keys, to be freed by the caller. Raises EngineError."""
        params = type(self._params).from_buffer_copy(self._params)
        params.n_ctx = -(-cells // CELL_BLOCK) * CELL_BLOCK
        params.n_batch = params.n_ubatch = params.n_outputs_max = params.n_outputs_max_per_seq = 1
        params.type_k, params.n_seq_max = F16, 1
        if handle := lib.llama_init_from_model(self._model, params):
            return handle
        raise EngineError(f"{self.name}: its full context cannot be shifted: {last_words()}; repeat the request")

    def _last_words(self) -> str:
        return last_words()
