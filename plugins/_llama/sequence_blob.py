"""A sequence's state as libllama writes it, taken apart into every layer's keys and values, and put together again.

The layout, little-endian, as read in `src/llama-kv-cache.cpp` and found in the builds tried:

    magic, sequence, streams, cells                      4 bytes each
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
_LEAD, _CELL, _TAIL, _LAYER = 16, 12, 8, 12  # bytes: before the cells, of one, after them, before a layer's rows


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


@dataclass(frozen=True, slots=True, eq=False)
class SequenceBlob:
    """`head` is everything before the layers; `sides` are the keys and the values, layer by layer."""

    head: Bytes
    cells: int
    sides: tuple[tuple[LayerRows, ...], tuple[LayerRows, ...]]


def parse(data: Bytes) -> SequenceBlob:
    """`data` taken apart; nothing is copied. Raises UnknownLayout."""
    try:
        return _parse(data)
    except (ValueError, IndexError) as error:  # shorter than it says
        raise UnknownLayout(f"a sequence's state of {data.nbytes} bytes ends too early ({error})") from error


def _parse(data: Bytes) -> SequenceBlob:
    magic, _, streams, cells = _numbers(data, 0, 4)
    _expect(magic == MAGIC and streams == 1, "begins in another way")
    marks = data[_LEAD : _LEAD + _CELL * cells].view(np.int32).reshape(cells, 3)
    in_order = np.array_equal(marks[:, 0], np.arange(cells)) and bool((marks[:, 1] == 1).all())
    _expect(in_order, "has cells in another order, or of several sequences")
    at = _LEAD + _CELL * cells
    transposed, layers = _numbers(data, at, 2)
    _expect(transposed == 0, "has its values transposed")
    head, at = data[: at + _TAIL], at + _TAIL
    sides = []
    for _ in range(2):
        side = []
        for _ in range(layers):
            rows, at = _layer(data, at, cells)
            side.append(rows)
        sides.append(tuple(side))
    _expect(at == data.nbytes, "goes on after its last layer")
    return SequenceBlob(head, cells, (sides[0], sides[1]))


def _layer(data: Bytes, at: int, cells: int) -> tuple[LayerRows, int]:
    kind, width, wider = _numbers(data, at, 3)
    _expect(kind in (F16, BF16) and wider == 0 and width % 2 == 0, "has cells of another number format")
    start, end = at + _LAYER, at + _LAYER + cells * width
    _expect(end <= data.nbytes, "ends too early")
    return LayerRows(kind, data[start:end].view(np.uint16).reshape(cells, width // 2)), end


def _numbers(data: Bytes, at: int, n: int) -> list[int]:
    return [int(number) for number in data[at : at + 4 * n].view(np.uint32).reshape(n)]


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise UnknownLayout(f"a sequence's state {otherwise}; this build of libllama lays it out in a way unknown here")


def moved(source: SequenceBlob, kinds: tuple[int, int], kept: SequenceBlob | None = None) -> Bytes:
    """The state that says of `source`'s cells the same with keys and values of `kinds`; the first ones are `kept`'s.

    `kept` has these kinds already and is taken over bit for bit. Raises UnknownLayout where the two do not belong
    together, and OverflowError where a number cannot be said in the new kind.
    """
    parts = [source.head]
    for side, kind in enumerate(kinds):
        layers, first = source.sides[side], kept.sides[side] if kept else ()
        _expect(not kept or len(first) == len(layers), "has another number of layers than the one it continues")
        for i, layer in enumerate(layers):
            parts += _layer_parts(layer, kind, first[i : i + 1])
    return np.concatenate(parts)


def _layer_parts(layer: LayerRows, kind: int, kept: Sequence[LayerRows]) -> Iterator[Bytes]:
    before = kept[0].rows if kept else layer.rows[:0]
    _expect(all(one.kind == kind for one in kept) and before.shape[1] == layer.rows.shape[1], "has other rows")
    yield np.array([kind, 2 * layer.rows.shape[1], 0], np.uint32).view(np.uint8)
    for rows in (before, layer.as_kind(kind, len(before))):
        yield np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
