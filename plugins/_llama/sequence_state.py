"""A sequence's state as libllama writes it, taken apart into cells, keys and values, and put together again.

The layout, little-endian, as read in `src/llama-kv-cache.cpp` and found in the builds tried:

    magic, sequence, streams of the cache                4 bytes each
    for every stream: its cells of this sequence         4 bytes; where there are any, which is in its own stream only:
      for every cell: position, how many sequences, which  4 bytes each
      values transposed?, layers                           4 bytes each
      for every layer: type (4), bytes a row (8), rows     the keys
      for every layer: type (4), bytes a row (8), rows     the values

Whatever does not read so to its last byte (a recurrent state, cells in another order, another version) is refused,
never guessed at. All after the first two words is one cache's block; one with sliding windows has a second, for which
see `window_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import Bytes
from pilotfish.plugins._llama.half_floats import BF16, F16, converted

MAGIC = 0xAF143CD8
_WORD = 4  # bytes
_LEAD, _CELL = 2, 3  # words: before the first cache, of a cell

Positions = npt.NDArray[np.int32]


class UnknownLayout(EngineError):
    """A state that is not laid out as above, or not as the one that it is to be put together with."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerRows:
    """One layer's keys or values. `rows`: (cells, bytes), numbers of the ggml type `kind`."""

    kind: int
    rows: Bytes

    def as_kind(self, kind: int) -> LayerRows:
        """The same in another format of 16 bits. Raises UnknownLayout where it has none now, and OverflowError."""
        expect(self.kind in (F16, BF16) and self.rows.shape[1] % 2 == 0, f"has cells of number format {self.kind}")
        return LayerRows(kind, converted(self.rows.view(np.uint16), self.kind, kind).view(np.uint8))


Side = tuple[LayerRows, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceState:
    """`sequence` in a cache of `streams`, in its own of them. `positions` has one for each cell, without gaps; `sides`
    are keys and values, layer by layer, both empty where there are no cells."""

    sequence: int
    streams: int
    positions: Positions = field(default_factory=lambda: np.empty(0, np.int32))
    sides: tuple[Side, Side] = ((), ())

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.positions)

    def part(self, start: int, end: int) -> SequenceState:
        """The cells from `start` to `end`, counted from the first."""
        keys, values = (tuple(LayerRows(one.kind, one.rows[start:end]) for one in side) for side in self.sides)
        return replace(self, positions=self.positions[start:end], sides=(keys, values))

    def with_keys(self, was: int, kind: int) -> SequenceState:
        """The same with its keys as `kind`. Raises UnknownLayout where they are not all `was`, or there are none, and
        OverflowError where one cannot be said in the new kind."""
        keys, values = self.sides
        found = sorted({layer.kind for layer in keys})
        expect(found == [was], f"has keys of the types {found}")
        return replace(self, sides=(tuple(layer.as_kind(kind) for layer in keys), values))

    def alone(self) -> SequenceState:
        """The same in a cache of one sequence."""
        return replace(self, sequence=0, streams=1)

    def written(self, *behind: SequenceState) -> Bytes:
        """As libllama reads it, with the cells of `behind` after these, all in this one's place. Raises UnknownLayout
        where they do not belong together."""
        held = [state for state in (self, *behind) if state.cells]
        in_order(np.concatenate([state.positions for state in (self, *behind)]))
        return np.concatenate([lead(self.sequence), *self.block(held)])

    def block(self, held: Sequence[SequenceState]) -> Iterator[Bytes]:
        """The cells of `held`, as one cache's block in this one's place. Raises UnknownLayout where they do not belong
        together."""
        cells = sum(state.cells for state in held)
        yield _as_bytes(self.streams, *[0] * self.sequence, cells)
        if held:
            yield from _cell_parts(held, self.sequence)
        yield _as_bytes(*[0] * (self.streams - self.sequence - 1))


def lead(sequence: int) -> Bytes:
    """What a state begins with, before its first cache."""
    return _as_bytes(MAGIC, sequence)


class Unread:
    """Goes through a state from its beginning. Raises UnknownLayout at its end."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return self._data.nbytes - self._at

    def take(self, size: int) -> Bytes:
        expect(size <= self.left, "ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def words(self, n: int) -> list[int]:
        return [int(word) for word in self.take(_WORD * n).view(np.uint32)]


def parse(data: Bytes) -> SequenceState:
    """`data` taken apart; keys and values are not copied. Raises UnknownLayout."""
    reader, sequence = opened(data)
    found = read_block(reader, sequence)
    in_order(found.positions)
    expect(reader.left == 0, "goes on after its last stream")
    return found


def opened(data: Bytes) -> tuple[Unread, int]:
    """`data` up to its first cache, and whose state it is. Raises UnknownLayout."""
    reader = Unread(data)
    magic, sequence = reader.words(_LEAD)
    expect(magic == MAGIC, "begins in another way")
    return reader, sequence


def read_block(reader: Unread, sequence: int) -> SequenceState:
    """The next cache's block, its cells in any order. Raises UnknownLayout."""
    (streams,) = reader.words(1)
    expect(sequence < streams, "begins in another way")
    found = SequenceState(sequence, streams)
    for stream in range(streams):
        (cells,) = reader.words(1)
        if cells:
            expect(stream == sequence, "has cells in several streams, or in another sequence's")
            found = SequenceState(sequence, streams, _positions(reader, cells, sequence), _sides(reader, cells))
    return found


def _positions(reader: Unread, cells: int, sequence: int) -> Positions:
    marks = reader.take(_WORD * _CELL * cells).view(np.int32).reshape(cells, _CELL)
    expect(bool((marks[:, 1:] == (1, sequence)).all()), "has cells of other sequences, too")
    return np.ascontiguousarray(marks[:, 0])


def in_order(positions: Positions) -> Positions:
    """`positions`. Raises UnknownLayout where they do not follow one another."""
    expect(bool((np.diff(positions) == 1).all()), "has cells in another order than that of their positions")
    return positions


def _sides(reader: Unread, cells: int) -> tuple[Side, Side]:
    transposed, layers = reader.words(2)
    expect(transposed == 0, "has its values transposed")
    keys = tuple(_layer(reader, cells) for _ in range(layers))
    return keys, tuple(_layer(reader, cells) for _ in range(layers))


def _layer(reader: Unread, cells: int) -> LayerRows:
    kind, low, high = reader.words(3)
    width = high << 32 | low
    return LayerRows(kind, reader.take(cells * width).reshape(cells, width))


def _cell_parts(held: Sequence[SequenceState], sequence: int) -> Iterator[Bytes]:
    positions = np.concatenate([state.positions for state in held])
    marks = np.full((len(positions), _CELL), (0, 1, sequence), np.int32)
    marks[:, 0] = positions
    yield marks.reshape(-1).view(np.uint8)
    layers = len(held[0].sides[0])
    expect(all(len(state.sides[0]) == layers for state in held), "has another number of layers than what it continues")
    yield _as_bytes(0, layers)
    for sides in zip(*(state.sides for state in held), strict=True):
        for pieces in zip(*sides, strict=True):
            yield from _layer_parts(pieces)


def _layer_parts(pieces: Sequence[LayerRows]) -> Iterator[Bytes]:
    kind, width = pieces[0].kind, pieces[0].rows.shape[1]
    expect(all((one.kind, one.rows.shape[1]) == (kind, width) for one in pieces), "has other rows than it continues")
    yield _as_bytes(kind, width & 0xFFFFFFFF, width >> 32)
    for one in pieces:
        yield one.rows.reshape(-1)


def expect(true: bool, otherwise: str) -> None:
    """Raise UnknownLayout unless it is `true`."""
    if not true:
        raise UnknownLayout(f"a sequence's state {otherwise}; this build of libllama lays it out in a way unknown here")


def _as_bytes(*words: int) -> Bytes:
    return np.array(words, np.uint32).view(np.uint8)


def moved(source: SequenceState, kinds: tuple[int, int], into: SequenceState) -> Bytes:
    """The state that gives `into`, a sequence of another cache, `source`'s cells with keys and values of `kinds`.

    Cells that `into` holds already have these kinds; they are the first ones, and keep every bit. Raises UnknownLayout
    where the two do not belong together, and OverflowError where a number cannot be said in the new kind.
    """
    expect(not source.positions[:1].any(), "does not begin at position 0")
    new = source.part(into.cells, source.cells)
    keys, values = (tuple(layer.as_kind(kind) for layer in side) for side, kind in zip(new.sides, kinds, strict=True))
    return into.written(replace(new, sides=(keys, values)))
