"""One sequence of an engine's context: forwards, cutting the tail of its cache, and copies of what it holds."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """One `sequence` of an engine's context. `size` counts its cells in use, rejected ones and padding included.

    What forwards and what a cache can forget is for the engine's own class to say. All methods raise EngineError when
    the engine fails; what the cache then holds is unknown, so `clear` it.
    """

    def __init__(
        self, name: str, *, handle: Any, cells: int, n_vocab: int, block: int, max_width: int, sequence: int = 0
    ) -> None:
        """`handle` is the engine's: sequences that share one may be in one forward."""
        self.name, self.handle, self.cells, self.n_vocab, self.sequence = name, handle, cells, n_vocab, sequence
        self.block, self.max_width = block, max_width  # tokens that `feed` and `forward` take at most
        self.size = 0
        self.last = 0  # cells that the last forward added, if nothing was cut since
        self.first_row = 0  # among the rows of the last forward, where several sequences were in it
        self.memory: CellMemory = CELLS

    @abstractmethod
    def feed(self, tokens: Sequence[int] | IdArray) -> None:
        """Forward `tokens` as one block, without logits."""

    @abstractmethod
    def forward(self, tokens: Sequence[int] | IdArray, width: int) -> None:
        """Forward `tokens`, repeating the last one up to `width`; every row gets logits.

        The padding rows too: the output matrix is a product like any other, and its width must lie in the
        lane as well.
        """

    @abstractmethod
    def step(self, token: int) -> None:
        """Forward one token: `forward([token], 1)`, as quick as it can be."""

    @abstractmethod
    def forward_again(self, tokens: Sequence[int], width: int) -> None:
        """`forward` of tokens that were taken back, which nothing is going to take back once more."""

    def forwarded(self, width: int, first_row: int) -> None:
        """A forward, perhaps of several sequences, added `width` cells here; their rows begin with its `first_row`."""
        self.size += width
        self.last, self.first_row = width, first_row

    @abstractmethod
    def row(self, i: int) -> Logits:
        """Row `i` of the last `forward`, `(n_vocab,)` float32, a view that the next forward may overwrite."""

    def told(self, i: int) -> bytes:
        """A digest of what the last forward computed for row `i`'s token; empty where nobody looks into forwards."""
        return b""

    @abstractmethod
    def wait(self) -> None:
        """Until the last forward is computed, where the device works on its own."""

    @abstractmethod
    def close(self) -> None:
        """Free it; a second call does nothing."""

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
            self.forward_again(tokens[at : at + width], width)
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


def digest_of(data: npt.NDArray[Any]) -> bytes:
    """Of the exact bits."""
    return hashlib.blake2b(np.ascontiguousarray(data).data, digest_size=DIGEST_BYTES).digest()
