"""One context of one sequence in a library of the llama.cpp family: forwards, and cutting the tail of its cache.

The hot path lives here. Batches are allocated once and written through numpy views; a plain step costs two
array stores and one foreign call beyond the forward itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError

IdArray = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

_DECODE_ERRORS = {
    1: "its cache has no room for the block",
    2: "the forward was aborted",
    -1: "the batch was invalid",
    -2: "memory could not be allocated",
    -3: "the computation failed",
}


class CellContext(ABC):
    """Owns the library's context `handle` and two batches. `size` counts the cells in use, rejected ones and padding
    included.

    `library` has llama.cpp's names for batches, forwards and rows, which its relatives share; what a cache can forget
    is for the engine's own class to say. All methods raise EngineError when the library fails; what the cache then
    holds is unknown, so `clear` it.
    """

    def __init__(
        self, library: Any, handle: Any, name: str, *, cells: int, n_vocab: int, block: int, max_width: int
    ) -> None:
        self.name, self.handle, self.cells, self.n_vocab = name, handle, cells, n_vocab
        self.block = block  # tokens that `feed` takes at most
        self.size = 0
        self._library = library
        self._positions = np.arange(self.cells + 1, dtype=np.int32)
        self._prompt = _Batch(library, block, logits=False)
        self._block = _Batch(library, max_width, logits=True)
        self._decode, self._logits = library.llama_decode, library.llama_get_logits_ith

    @abstractmethod
    def _remove(self, size: int) -> bool:
        """Make the cache forget all but its first `size` cells; False when this kind of memory cannot."""

    @abstractmethod
    def _remove_all(self) -> None:
        """Make the cache forget every cell."""

    @property
    @abstractmethod
    def can_shift(self) -> bool:
        """Whether a full cache may forget: false for models in which what is left cannot take new positions."""

    @abstractmethod
    def _shift(self, keep: int, discard: int) -> bool:
        """Make the cache forget `discard` cells after the first `keep`, and move those that follow down."""

    @abstractmethod
    def _last_words(self) -> str:
        """What the library said last, for messages."""

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
        raise EngineError(f"{self.name}: a forward failed, {why}: {self._last_words()}; repeat the request")

    def row(self, i: int) -> Logits:
        """Row `i` of the last `forward`, `(n_vocab,)` float32, a view that the next forward overwrites."""
        return np.ctypeslib.as_array(self._logits(self.handle, i), shape=(self.n_vocab,))

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells. False when this kind of memory cannot: then nothing was cut."""
        if size >= self.size:
            return True
        if not self._remove(size):
            return False
        self.size = size
        return True

    def shift(self, keep: int, discard: int) -> bool:
        """Forget `discard` cells after the first `keep`; those that follow take the places before them, rotated.

        False where cells of this type cannot be moved: what the cache then holds is unknown, so `clear` it.
        """
        if not self._shift(keep, discard):
            return False
        self.size -= discard
        return True

    def clear(self) -> None:
        """Forget every cell."""
        self._remove_all()
        self.size = 0

    def wait(self) -> None:
        """Until the last forward is computed, where the device works on its own."""
        self._library.llama_synchronize(self.handle)

    def close(self) -> None:
        """Free the context; a second call does nothing."""
        if self.handle:
            self._prompt.free()
            self._block.free()
            self._library.llama_free(self.handle)
            self.handle = None


class _Batch:
    """A `llama_batch` for sequence 0 whose `logits` flags never change."""

    def __init__(self, library: Any, capacity: int, *, logits: bool) -> None:
        self._free: Callable[[Any], None] = library.llama_batch_free
        self.struct = library.llama_batch_init(capacity, 0, 1)
        self.tokens: IdArray = np.ctypeslib.as_array(self.struct.token, shape=(capacity,))
        self.positions: IdArray = np.ctypeslib.as_array(self.struct.pos, shape=(capacity,))
        for i in range(capacity):
            self.struct.n_seq_id[i] = 1
            self.struct.seq_id[i][0] = 0
            self.struct.logits[i] = logits

    def free(self) -> None:
        self._free(self.struct)
