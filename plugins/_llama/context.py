"""One libllama context with one sequence."""

from __future__ import annotations

import ctypes
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import Bytes, CellContext
from pilotfish.plugins._llama.library import last_words, lib

_BYTES = ctypes.POINTER(ctypes.c_uint8)


class LlamaContext(CellContext):
    """Owns a `llama_context`."""

    def __init__(self, model: Any, params: Any, name: str, max_width: int) -> None:
        handle = lib.llama_init_from_model(model, params)
        if not handle:
            raise EngineError(f"{name}: no context of {params.n_ctx} tokens could be made: {last_words()}")
        self._memory = lib.llama_get_memory(handle)
        super().__init__(
            lib,
            handle,
            name,
            cells=lib.llama_n_ctx_seq(handle),
            n_vocab=lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)),
            block=params.n_batch,
            max_width=max_width,
        )

    def _remove(self, size: int) -> bool:
        return bool(lib.llama_memory_seq_rm(self._memory, 0, size, -1))

    def _remove_all(self) -> None:
        lib.llama_memory_clear(self._memory, False)

    def _state_size(self) -> int:
        return int(lib.llama_state_seq_get_size(self.handle, 0))

    def _read_state(self, data: Bytes) -> int:
        return int(lib.llama_state_seq_get_data(self.handle, data.ctypes.data_as(_BYTES), data.nbytes, 0))

    def _write_state(self, data: Bytes) -> bool:
        return bool(lib.llama_state_seq_set_data(self.handle, data.ctypes.data_as(_BYTES), data.nbytes, 0))

    def _last_words(self) -> str:
        return last_words()
