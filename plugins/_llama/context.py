"""One libllama context with one sequence: forwards, and cutting the tail of its cache.

The hot path lives here. Batches are allocated once and written through numpy views; a plain step costs two
array stores and one foreign call beyond the forward itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._llama.library import last_words, lib

IdArray = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

_DECODE_ERRORS = {
    1: "its cache has no room for the block",
    2: "the forward was aborted",
    -1: "the batch was invalid",
    -2: "memory could not be allocated",
    -3: "the computation failed",
}


class LlamaContext:
    """Owns a `llama_context` and two batches. `size` counts the cells in use, rejected ones and padding included.

    All methods raise EngineError when libllama fails; what the cache then holds is unknown, so `clear` it.
    """

    def __init__(self, model: Any, params: Any, name: str, max_width: int) -> None:
        self.name = name
        self.handle = lib.llama_init_from_model(model, params)
        if not self.handle:
            raise EngineError(f"{name}: no context of {params.n_ctx} tokens could be made: {last_words()}")
        self._memory = lib.llama_get_memory(self.handle)
        self.cells: int = lib.llama_n_ctx_seq(self.handle)
        self.n_vocab: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        self.size = 0
        self._positions = np.arange(self.cells + 1, dtype=np.int32)
        self._prompt = _Batch(params.n_batch, logits=False)
        self._block = _Batch(max_width, logits=True)
        self._decode = lib.llama_decode

    def feed(self, tokens: Sequence[int] | IdArray) -> None:
        """Forward `tokens` as one block, without logits."""
        self._run(self._prompt, tokens, len(tokens))

    def feed_to_row(self, tokens: Sequence[int] | IdArray) -> Logits:
        """Forward `tokens` as one block; the row after the last of them, as `row`. No other row is computed."""
        last, flags = len(tokens) - 1, self._prompt.struct.logits
        flags[last] = True
        try:
            self._run(self._prompt, tokens, len(tokens))
        finally:
            flags[last] = False
        return self.row(last)

    def forward(self, tokens: Sequence[int] | IdArray, width: int) -> None:
        """Forward `tokens`, repeating the last one up to `width`; every row gets logits.

        The padding rows too: the output matrix is a product like any other, and its width must lie in the
        lane as well.
        """
        self._run(self._block, tokens, width)

    def step(self, token: int) -> None:
        """Forward one token: `forward([token], 1)` without the array work."""
        batch = self._block
        batch.tokens[0] = token
        batch.positions[0] = self.size
        batch.struct.n_tokens = 1
        if code := self._decode(self.handle, batch.struct):
            self._fail(code)
        self.size += 1

    def _run(self, batch: _Batch, tokens: Sequence[int] | IdArray, width: int) -> None:
        count, size = len(tokens), self.size
        batch.tokens[:count] = tokens
        batch.tokens[count:width] = tokens[-1]
        batch.positions[:width] = self._positions[size : size + width]
        batch.struct.n_tokens = width
        if code := self._decode(self.handle, batch.struct):
            self._fail(code)
        self.size = size + width

    def _fail(self, code: int) -> None:
        why = _DECODE_ERRORS.get(code, f"llama_decode returned {code}")
        raise EngineError(f"{self.name}: a forward failed, {why}: {last_words()}; repeat the request")

    def row(self, i: int) -> Logits:
        """Row `i` of the last `forward`, `(n_vocab,)` float32, a view that the next forward overwrites."""
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(self.handle, i), shape=(self.n_vocab,))

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells. False when this kind of memory cannot: then nothing was cut."""
        if size >= self.size:
            return True
        if not lib.llama_memory_seq_rm(self._memory, 0, size, -1):
            return False
        self.size = size
        return True

    def clear(self) -> None:
        """Forget every cell."""
        lib.llama_memory_clear(self._memory, False)
        self.size = 0

    def close(self) -> None:
        """Free the context; a second call does nothing."""
        if self.handle:
            self._prompt.free()
            self._block.free()
            lib.llama_free(self.handle)
            self.handle = None


class _Batch:
    """A `llama_batch` for sequence 0 whose `logits` flags never change."""

    def __init__(self, capacity: int, *, logits: bool) -> None:
        self.struct = lib.llama_batch_init(capacity, 0, 1)
        self.tokens: IdArray = np.ctypeslib.as_array(self.struct.token, shape=(capacity,))
        self.positions: IdArray = np.ctypeslib.as_array(self.struct.pos, shape=(capacity,))
        for i in range(capacity):
            self.struct.n_seq_id[i] = 1
            self.struct.seq_id[i][0] = 0
            self.struct.logits[i] = logits

    def free(self) -> None:
        lib.llama_batch_free(self.struct)
