"""One ik_llama.cpp context with one sequence."""

from __future__ import annotations

from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import Bytes, CellContext
from pilotfish.plugins._ik.library import Library, log

_NO_FLAGS = 0  # the whole state


class IkContext(CellContext):
    """Owns a `llama_context`."""

    def __init__(self, library: Library, model: Any, params: Any, name: str, max_width: int) -> None:
        self._lib = lib = library.lib
        log.last_words()
        handle = lib.llama_init_from_model(model, params)
        if not handle:
            raise EngineError(f"{name}: no context of {params.n_ctx} tokens could be made: {log.last_words()}")
        super().__init__(
            lib,
            handle,
            name,
            cells=lib.llama_n_ctx(handle),
            n_vocab=lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)),
            block=params.n_batch,
            max_width=max_width,
        )

    def _remove(self, size: int) -> bool:
        return bool(self._lib.llama_kv_cache_seq_rm(self.handle, 0, size, -1))

    def _remove_all(self) -> None:
        self._lib.llama_kv_cache_seq_rm(self.handle, 0, -1, -1)  # `llama_kv_cache_clear` would write every cell

    def _state_size(self) -> int:
        return int(self._lib.llama_state_seq_get_size(self.handle, 0, _NO_FLAGS))

    def _read_state(self, data: Bytes) -> int:
        return int(self._lib.llama_state_seq_get_data(self.handle, data.ctypes.data, data.nbytes, 0, _NO_FLAGS))

    def _write_state(self, data: Bytes) -> bool:
        return bool(self._lib.llama_state_seq_set_data(self.handle, data.ctypes.data, data.nbytes, 0, _NO_FLAGS))

    def _last_words(self) -> str:
        return log.last_words()
