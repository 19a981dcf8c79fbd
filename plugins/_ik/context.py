"""One ik_llama.cpp context with one sequence."""

from __future__ import annotations

import ctypes
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import Bytes
from pilotfish.plugins._cells.library_context import LibraryContext
from pilotfish.plugins._ik.library import Library, log

_TURNING = (-1, 0, 2)  # kinds of positions: none at all, and the two with one number for each token
_COMPRESSED = (b"deepseek2", b"glm-dsa")  # architectures whose keys are not kept as they are

_NO_FLAGS = 0  # the whole state


class IkContext(LibraryContext):
    """Owns a `llama_context`."""

    def __init__(self, library: Library, model: Any, params: Any, name: str, max_width: int) -> None:
        self._lib = lib = library.lib
        self._turns = _turns_keys(lib, model)
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

    @property
    def can_shift(self) -> bool:
        return self._turns

    def _shift(self, keep: int, discard: int) -> bool:
        """In place, and then written back without the gap: this library wants a block's cells side by side."""
        lib = self._lib
        lib.llama_kv_cache_seq_rm(self.handle, 0, keep, keep + discard)
        lib.llama_kv_cache_seq_add(self.handle, 0, keep + discard, -1, -discard)
        if lib.llama_kv_cache_update(self.handle):
            raise EngineError(f"{self.name}: its context cannot be shifted: {log.last_words()}; repeat the request")
        cells = self.state()
        self._remove_all()
        if not self._write_state(cells.data):
            raise EngineError(f"{self.name}: its shifted cells do not fit: {log.last_words()}; repeat the request")
        return True

    def _state_size(self) -> int:
        return int(self._lib.llama_state_seq_get_size(self.handle, 0, _NO_FLAGS))

    def _read_state(self, data: Bytes) -> int:
        return int(self._lib.llama_state_seq_get_data(self.handle, data.ctypes.data, data.nbytes, 0, _NO_FLAGS))

    def _write_state(self, data: Bytes) -> bool:
        return bool(self._lib.llama_state_seq_set_data(self.handle, data.ctypes.data, data.nbytes, 0, _NO_FLAGS))

    def _last_words(self) -> str:
        return log.last_words()


def _turns_keys(lib: Any, model: Any) -> bool:
    """Whether keys of `model` can take new positions; the library refuses some, and forwards fail from then on."""
    architecture = ctypes.create_string_buffer(64)
    lib.llama_model_meta_val_str(model, b"general.architecture", architecture, len(architecture))
    return lib.llama_rope_type(model) in _TURNING and architecture.value not in _COMPRESSED
