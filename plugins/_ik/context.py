"""One ik_llama.cpp context with one sequence."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._ik.library import Library, log

_SIZE_BYTES, _DIGEST_BYTES = 8, 16  # a state begins with the number of its cells and a digest of the rest


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

    def state(self) -> bytes:
        """The cells and what they hold, for `restore` on a context of the same model and setting."""
        size = self._lib.llama_state_seq_get_size(self.handle, 0, 0)
        buffer = ctypes.create_string_buffer(size)
        if self._lib.llama_state_seq_get_data(self.handle, buffer, size, 0, 0) != size:
            raise EngineError(f"{self.name}: its state could not be read: {self._last_words()}")
        return self.size.to_bytes(_SIZE_BYTES, "little") + _digest(buffer.raw) + buffer.raw

    def restore(self, state: bytes) -> None:
        """Hold what `state` says instead of what is held. Raises EngineError for one that is damaged.

        The library aborts the process over bytes that it did not write itself, hence the digest; that they are of this
        model and setting is for the caller to know.
        """
        head = _SIZE_BYTES + _DIGEST_BYTES
        size, body = int.from_bytes(state[:_SIZE_BYTES], "little"), state[head:]
        self.clear()
        if state[_SIZE_BYTES:head] != _digest(body):
            raise EngineError(f"{self.name}: a saved state is damaged; feed the prompt again")
        if not self._lib.llama_state_seq_set_data(self.handle, body, len(body), 0, 0):
            self.clear()
            raise EngineError(f"{self.name}: a saved state does not fit: {self._last_words()}; feed the prompt again")
        self.size = size

    def _remove(self, size: int) -> bool:
        return bool(self._lib.llama_kv_cache_seq_rm(self.handle, 0, size, -1))

    def _remove_all(self) -> None:
        self._lib.llama_kv_cache_seq_rm(self.handle, 0, -1, -1)  # `llama_kv_cache_clear` would write every cell

    def _last_words(self) -> str:
        return log.last_words()


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
