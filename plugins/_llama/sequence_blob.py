"""A sequence's state as libllama writes it, taken apart into every layer's keys and values, and put together again.

The layout, little-endian, as read in `src/llama-kv-cache.cpp` and found in the builds tried:

    magic, sequence, streams of the cache                4 bytes each
    for every stream: its cells of this sequence         4 bytes; where there are any, which is in one stream at most:
      for every cell: position, how many sequences, which  4 bytes each
      values transposed?, layers                           4 bytes each
      for every layer: type (4), bytes a row (8), rows     the keys
      for every layer: type (4), bytes a row (8), rows     the values

Whatever does not read so to its last byte (a second cache for windows, a recurrent state, other numbers, another
version) is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import Bytes
from pilotfish.plugins._llama.half_floats import BF16, F16, Halves, converted

MAGIC = 0xAF143CD8
_WORD = 4  # bytes
_LEAD, _CELL, _LAYER = 3, 3, 3  # words: before the streams, of a cell, before a layer's rows


class UnknownLayout(EngineError):
    """A state that is not laid out as above."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerRows:
    """One layer's keys or values. `rows`: (cells, numbers), bits of the ggml type `kind`."""

    kind: int
    rows: Halves

    def as_kind(self, kind: int, start: int = 0) -> Halves:
        """The rows from `start` on in another number format. Raises OverflowError."""
        return converted(self.rows[start:], self.kind, kind)


Side = tuple[LayerRows, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceBlob:
    """`sequence` in a cache of `streams`, in its own of them. `sides` are keys and values, layer by layer."""

    sequence: int
    streams: int
    cells: int = 0
    sides: tuple[Side, Side] = ((), ())


class _Unread:
    """Goes through a state from its beginning. Raises UnknownLayout at its end."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return self._data.nbytes - self._at

    def take(self, size: int) -> Bytes:
        _expect(size <= self.left, "ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def words(self, n: int) -> list[int]:
        return [int(word) for word in self.take(_WORD * n).view(np.uint32)]


def parse(data: Bytes) -> SequenceBlob:
    """`data` taken apart; nothing is copied. Raises UnknownLayout."""
    reader = _Unread(data)
    magic, sequence, streams = reader.words(_LEAD)
    _expect(magic == MAGIC and sequence < streams, "begins in another way")
    found = SequenceBlob(sequence, streams)
    for _ in range(streams):
        (cells,) = reader.words(1)
        if cells:
            _expect(found.cells == 0, "has cells in several streams")
            found = SequenceBlob(sequence, streams, cells, _sides(reader, cells))
    _expect(reader.left == 0, "goes on after its last stream")
    return found


def _sides(reader: _Unread, cells: int) -> tuple[Side, Side]:
    marks = reader.take(_WORD * _CELL * cells).view(np.int32).reshape(cells, _CELL)
    in_order = np.array_equal(marks[:, 0], np.arange(cells)) and bool((marks[:, 1] == 1).all())
    _expect(in_order, "has cells in another order, or of several sequences")
    transposed, layers = reader.words(2)
    _expect(transposed == 0, "has its values transposed")
    keys = tuple(_layer(reader, cells) for _ in range(layers))
    return keys, tuple(_layer(reader, cells) for _ in range(layers))


def _layer(reader: _Unread, cells: int) -> LayerRows:
    kind, width, wider = reader.words(_LAYER)
    _expect(kind in (F16, BF16) and wider == 0 and width % 2 == 0, "has cells of another number format")
    return LayerRows(kind, reader.take(cells * width).view(np.uint16).reshape(cells, width // 2))


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise UnknownLayout(f"a sequence's state {otherwise}; this build of libllama lays it out in a way unknown here")


def moved(source: SequenceBlob, kinds: tuple[int, int], into: SequenceBlob) -> Bytes:
    """The state that gives `into`, a sequence of another cache, `source`'s cells with keys and values of `kinds`.

    Cells that `into` holds already have these kinds; they are the first ones, and keep every bit. Raises UnknownLayout
    where the two do not belong together, and OverflowError where a number cannot be said in the new kind.
    """
    marks = np.full((source.cells, _CELL), 1, np.int32)
    marks[:, 0], marks[:, 2] = np.arange(source.cells), into.sequence
    parts = [
        _as_bytes(MAGIC, into.sequence, into.streams, *[0] * into.sequence, source.cells),
        marks.reshape(-1).view(np.uint8),
        _as_bytes(0, len(source.sides[0])),
    ]
    for layers, kept, kind in zip(source.sides, into.sides, kinds, strict=True):
        _expect(len(kept) in (0, len(layers)), "has another number of layers than the one it continues")
        for i, layer in enumerate(layers):
            parts += _layer_parts(layer, kind, kept[i : i + 1])
    parts.append(_as_bytes(*[0] * (into.streams - into.sequence - 1)))
    return np.concatenate(parts)


def _layer_parts(layer: LayerRows, kind: int, kept: Sequence[LayerRows]) -> Iterator[Bytes]:
    before = kept[0].rows if kept else layer.rows[:0]
    _expect(all(one.kind == kind for one in kept) and before.shape[1] == layer.rows.shape[1], "has other rows")
    yield _as_bytes(kind, 2 * layer.rows.shape[1], 0)
    for rows in (before, layer.as_kind(kind, len(before))):
        yield np.ascontiguousarray(rows).reshape(-1).view(np.uint8)


def _as_bytes(*words: int) -> Bytes:
    return np.array(words, np.uint32).view(np.uint8)
