"""One sequence of a context in a library of the llama.cpp family: forwards.

The hot path lives here. Batches are allocated once and written through numpy views; a plain step costs two
array stores and one foreign call beyond the forward itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import CellContext, IdArray, Logits

_DECODE_ERRORS = {
    1: "its cache has no room for the block",
    2: "the forward was aborted",
    -1: "the batch was invalid",
    -2: "memory could not be allocated",
    -3: "the computation failed",
}


class LibraryContext(CellContext):
    """One `sequence` of the library's context `handle`, with two batches. The first sequence of a context owns it, and
    is closed last.

    `library` has llama.cpp's names for batches, forwards and rows, which its relatives share.
    """

    def __init__(
        self,
        library: Any,
        handle: Any,
        name: str,
        *,
        cells: int,
        n_vocab: int,
        block: int,
        max_width: int,
        sequence: int = 0,
    ) -> None:
        super().__init__(
            name, handle=handle, cells=cells, n_vocab=n_vocab, block=block, max_width=max_width, sequence=sequence
        )
        self.library = library
        self._positions = np.arange(self.cells + 1, dtype=np.int32)
        self._prompt = Batch(library, block, sequence, logits=False)
        self._block = Batch(library, max_width, sequence, logits=True)
        self._decode, self._logits = library.llama_decode, library.llama_get_logits_ith
        self._synchronize = library.llama_synchronize

    def watch(self, watching: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Have the calls that compute, and those that wait for it, as `watching` makes them."""
        self._decode, self._logits = watching(self._decode), watching(self._logits)
        self._synchronize = watching(self._synchronize)

    def feed(self, tokens: Sequence[int] | IdArray) -> None:
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
        self._run(self._block, tokens, width)

    def forward_again(self, tokens: Sequence[int], width: int) -> None:
        self._run(self._block, tokens, width)

    def step(self, token: int) -> None:
        batch = self._block
        batch.tokens[0] = token
        batch.positions[0] = self.size
        batch.struct.n_tokens = 1
        if code := self._decode(self.handle, batch.struct):
            self.fail(code)
        self.forwarded(1, 0)

    def _run(self, batch: Batch, tokens: Sequence[int] | IdArray, width: int) -> None:
        count, size = len(tokens), self.size
        batch.tokens[:count] = tokens
        batch.tokens[count:width] = tokens[-1]
        batch.positions[:width] = self._positions[size : size + width]
        batch.struct.n_tokens = width
        if code := self._decode(self.handle, batch.struct):
            self.fail(code)
        self.forwarded(width, 0)

    def fail(self, code: int) -> NoReturn:
        """Raise EngineError for what `llama_decode` returned."""
        why = _DECODE_ERRORS.get(code, f"llama_decode returned {code}")
        raise EngineError(f"{self.name}: a forward failed, {why}: {self._last_words()}; repeat the request")

    def row(self, i: int) -> Logits:
        return np.ctypeslib.as_array(self._logits(self.handle, self.first_row + i), shape=(self.n_vocab,))

    def wait(self) -> None:
        self._synchronize(self.handle)

    def close(self) -> None:
        """Free the batches, and the context with its first sequence; a second call does nothing."""
        if self.handle:
            self._prompt.free()
            self._block.free()
            if self.sequence == 0:
                self.library.llama_free(self.handle)
            self.handle = None


class Batch:
    """A `llama_batch` whose `logits` flags never change, for one sequence unless `assign` says otherwise."""

    def __init__(self, library: Any, capacity: int, sequence: int = 0, *, logits: bool) -> None:
        self._free: Callable[[Any], None] = library.llama_batch_free
        self.struct = library.llama_batch_init(capacity, 0, 1)
        self.tokens: IdArray = np.ctypeslib.as_array(self.struct.token, shape=(capacity,))
        self.positions: IdArray = np.ctypeslib.as_array(self.struct.pos, shape=(capacity,))
        for i in range(capacity):
            self.struct.n_seq_id[i] = 1
            self.struct.seq_id[i][0] = sequence
            self.struct.logits[i] = logits

    def assign(self, start: int, end: int, sequence: int) -> None:
        """Tokens from `start` up to `end` belong to `sequence`."""
        for i in range(start, end):
            self.struct.seq_id[i][0] = sequence

    def free(self) -> None:
        self._free(self.struct)
