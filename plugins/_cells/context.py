"""One sequence of a context in a library of the llama.cpp family: forwards, and cutting the tail of its cache.

The hot path lives here. Batches are allocated once and written through numpy views; a plain step costs two
array stores and one foreign call beyond the forward itself.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import CellsPart
from pilotfish.hooks.types import in_blocks
from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory

IdArray = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

DIGEST_BYTES = 16

_DECODE_ERRORS = {
    1: "its cache has no room for the block",
    2: "the forward was aborted",
    -1: "the batch was invalid",
    -2: "memory could not be allocated",
    -3: "the computation failed",
}


@dataclass(frozen=True, slots=True, eq=False)
class CellState:
    """A copy of `cells` cells in host memory, in the library's own form: for contexts of the same model, build and
    setting, and nothing else. The library may end the process over bytes that it did not write."""

    cells: int
    data: Bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return self.data.nbytes


class CellContext(ABC):
    """One `sequence` of the library's context `handle`, with two batches. `size` counts its cells in use, rejected ones
    and padding included. The first sequence of a context owns it, and is closed last.

    `library` has llama.cpp's names for batches, forwards and rows, which its relatives share; what a cache can forget
    is for the engine's own class to say. All methods raise EngineError when the library fails; what the cache then
    holds is unknown, so `clear` it.
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
        self.name, self.handle, self.cells, self.n_vocab, self.sequence = name, handle, cells, n_vocab, sequence
        self.block, self.max_width = block, max_width  # tokens that `feed` and `forward` take at most
        self.size = 0
        self.last = 0  # cells that the last forward added, if nothing was cut since
        self.first_row = 0  # among the rows of the last forward, where several sequences were in it
        self.memory: CellMemory = CELLS
        self.library = library
        self._positions = np.arange(self.cells + 1, dtype=np.int32)
        self._prompt = Batch(library, block, sequence, logits=False)
        self._block = Batch(library, max_width, sequence, logits=True)
        self._decode, self._logits = library.llama_decode, library.llama_get_logits_ith

    @abstractmethod
    def _remove(self, size: int) -> bool:
        """Make the cache forget all but its first `size` cells; False when this kind of memory cannot."""

    @abstractmethod
    def _remove_all(self) -> None:
        """Make the cache forget every cell."""

    def mark(self) -> tuple[int, ...]:
        """Remember how to come back here, where only marks lead back; the sizes of which that is remembered."""
        return ()

    @property
    def going_back(self) -> float | None:
        """Seconds that writing a state back takes, as far as that was seen; None where no state is written back."""
        return None

    @property
    @abstractmethod
    def can_shift(self) -> bool:
        """Whether a full cache may forget: false for models in which what is left cannot take new positions."""

    @abstractmethod
    def _shift(self, keep: int, discard: int) -> bool:
        """Make the cache forget `discard` cells after the first `keep`, and move those that follow down."""

    @abstractmethod
    def _state_size(self) -> int:
        """Bytes of the sequence's state."""

    @abstractmethod
    def _read_state(self, data: Bytes) -> int:
        """Copy the sequence's state into `data`; how many bytes were written."""

    @abstractmethod
    def _write_state(self, data: Bytes) -> bool:
        """Make the empty sequence what `data` says; False when the library refuses."""

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
            self.fail(code)
        self.size += 1
        self.last, self.first_row = 1, 0

    def forwarded(self, width: int, first_row: int) -> None:
        """A forward of several sequences added `width` cells here; their rows begin with its row `first_row`."""
        self.size += width
        self.last, self.first_row = width, first_row

    def _run(self, batch: Batch, tokens: Sequence[int] | IdArray, width: int) -> None:
        count, size = len(tokens), self.size
        batch.tokens[:count] = tokens
        batch.tokens[count:width] = tokens[-1]
        batch.positions[:width] = self._positions[size : size + width]
        batch.struct.n_tokens = width
        if code := self._decode(self.handle, batch.struct):
            self.fail(code)
        self.size = size + width
        self.last, self.first_row = width, 0

    def fail(self, code: int) -> NoReturn:
        """Raise EngineError for what `llama_decode` returned."""
        why = _DECODE_ERRORS.get(code, f"llama_decode returned {code}")
        raise EngineError(f"{self.name}: a forward failed, {why}: {self._last_words()}; repeat the request")

    def row(self, i: int) -> Logits:
        """Row `i` of the last `forward`, `(n_vocab,)` float32, a view that the next forward overwrites."""
        return np.ctypeslib.as_array(self._logits(self.handle, self.first_row + i), shape=(self.n_vocab,))

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells. False when this kind of memory cannot: then nothing was cut."""
        if size >= self.size:
            return True
        if not self._remove(size):
            return False
        self.size, self.last = size, 0
        return True

    def feed_again(self, tokens: Sequence[int], widths: Sequence[int]) -> bool:
        """Take the last forward back, and forward the first of its tokens again, in blocks of these widths.

        For a memory that `restores`. False when it does not lead back; then nothing has changed.
        """
        if not self.memory.restores or not self.last or not self.cut(self.size - self.last):
            return False
        at = 0
        for width in in_blocks(len(tokens), widths):
            self._run(self._block, tokens[at : at + width], width)
            at += width
        self.wait()
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
        self.size = self.last = 0

    def state_size(self) -> int:
        """Bytes that `state` would take."""
        return self._state_size()

    def state(self) -> CellState:
        """What the cells hold, for `restore`. Raises EngineError, or MemoryError when there is no room for the copy."""
        data = np.empty(self._state_size(), dtype=np.uint8)
        if (written := self._read_state(data)) != data.nbytes:
            raise EngineError(
                f"{self.name}: {written} of {data.nbytes} bytes of its cells could be read: {self._last_words()}; "
                "feed the prompt again"
            )
        return CellState(self.size, data)

    def parts(self, since: int) -> tuple[CellsPart, ...]:
        """What the cells hold, as digests; in one where the library's form is not known. Raises EngineError."""
        return (CellsPart("all cells", digest_of(self.state().data)),)

    def restore(self, state: CellState) -> None:
        """Hold what `state` says instead of what is held. Raises EngineError; nothing is held then."""
        self.clear()
        if state.cells > self.cells:
            raise EngineError(f"{self.name}: {state.cells} saved cells do not fit {self.cells}; feed the prompt again")
        if not self._write_state(state.data):
            self.clear()
            raise EngineError(f"{self.name}: saved cells were refused: {self._last_words()}; feed the prompt again")
        self.size = state.cells

    def wait(self) -> None:
        """Until the last forward is computed, where the device works on its own."""
        self.library.llama_synchronize(self.handle)

    def close(self) -> None:
        """Free the batches, and the context with its first sequence; a second call does nothing."""
        if self.handle:
            self._prompt.free()
            self._block.free()
            if self.sequence == 0:
                self.library.llama_free(self.handle)
            self.handle = None


def digest_of(data: npt.NDArray[Any]) -> bytes:
    """Of the exact bits."""
    return hashlib.blake2b(np.ascontiguousarray(data).data, digest_size=DIGEST_BYTES).digest()


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
