"""The state of one sequence, as libllama writes it, taken apart: cells, keys and values.

Magic, sequence, number of streams (of the context, which has one for each of its sequences); for each stream its number
of cells, and where there are some: each one's position and the ids of its sequences; whether values are transposed,
number of layers; for each layer the type of its keys, the bytes of a row, the rows; then the same for values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

F16, BF16 = 1, 30  # ggml's numbers for the types of keys
_HEAD = 12  # bytes before the numbers of cells
_CELL = 3  # 32-bit words of a cell of one sequence: position, number of sequences, the sequence
_LAYER = 12  # bytes before a layer's rows: their type and the bytes of one


class CannotMove(Exception):
    """A state is not laid out as described, or a key is out of the range of f16."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceState:
    """`cells` are `(n, 3)` words, `keys` and `values` one `(type, (n, bytes))` for each layer.

    `place` says how many empty streams stand before and behind the sequence's own.
    """

    head: Bytes
    place: tuple[int, int]
    cells: npt.NDArray[np.int32]
    keys: tuple[tuple[int, Bytes], ...]
    values: tuple[tuple[int, Bytes], ...]

    @classmethod
    def read(cls, state: Bytes) -> SequenceState:
        """What `state` says; views into it. Raises CannotMove."""
        count, place, at = _place(state)
        cells = _part(state, at, 4 * _CELL * count).view(np.int32).reshape(count, _CELL)
        if not (cells[:, 1] == 1).all():
            raise CannotMove("its cells belong to other sequences, too")
        if (np.diff(cells[:, 0]) != 1).any():
            raise CannotMove("its cells do not lie in the order of their positions")
        at += 4 * _CELL * count
        transposed, layers = _words(_part(state, at, 8))
        if transposed:
            raise CannotMove("its values are transposed")
        at += 8
        rows: list[tuple[int, Bytes]] = []
        for _ in range(2 * layers):
            head = _part(state, at, _LAYER)
            size = int(head[4:].copy().view(np.uint64)[0])
            rows.append((_words(head[:4])[0], _part(state, at + _LAYER, count * size).reshape(count, size)))
            at += _LAYER + count * size
        if _part(state, at, 4 * place[1]).any():
            raise CannotMove("several streams have cells")
        if at + 4 * place[1] != len(state):
            raise CannotMove(f"{len(state) - at} bytes are left over")
        return cls(state[:8], place, cells, tuple(rows[:layers]), tuple(rows[layers:]))

    def written(self, *, alone: bool = False) -> Bytes:
        """As libllama reads it; `alone`, as a context of one sequence does."""
        before, behind = (0, 0) if alone else self.place
        counts = [before + 1 + behind, *[0] * before, len(self.cells)]
        parts = [self.head, _bytes(counts), self.cells.reshape(-1).view(np.uint8), _bytes([0, len(self.keys)])]
        for kind, rows in (*self.keys, *self.values):
            parts += [_bytes([kind]), np.array([rows.shape[1]], np.uint64).view(np.uint8), rows.reshape(-1)]
        return np.concatenate([*parts, np.zeros(4 * behind, np.uint8)])

    def part(self, start: int, end: int) -> SequenceState:
        """The cells from `start` to `end`."""
        keys, values = (tuple((kind, rows[start:end]) for kind, rows in side) for side in (self.keys, self.values))
        return replace(self, cells=np.ascontiguousarray(self.cells[start:end]), keys=keys, values=values)

    def followed_by(self, other: SequenceState) -> SequenceState:
        """These cells, and those of `other`, which has keys and values of the same types, behind them."""
        keys, values = (
            tuple((kind, np.concatenate([a, b])) for (kind, a), (_, b) in zip(mine, others, strict=True))
            for mine, others in ((self.keys, other.keys), (self.values, other.values))
        )
        return replace(self, cells=np.concatenate([self.cells, other.cells]), keys=keys, values=values)

    def with_keys(self, kind: int) -> SequenceState:
        """The same with its keys as `kind`, F16 or BF16, which they are not yet. Raises CannotMove."""
        was = BF16 if kind == F16 else F16
        if any(type_of_keys != was for type_of_keys, _ in self.keys):
            raise CannotMove(f"its keys are of the types {sorted({found for found, _ in self.keys})}")
        turned = _to_f16 if kind == F16 else _to_bf16
        return replace(self, keys=tuple((kind, turned(np.ascontiguousarray(rows))) for _, rows in self.keys))


def _place(state: Bytes) -> tuple[int, tuple[int, int], int]:
    """How many cells there are, the place of their stream, and the byte behind their number. Raises CannotMove."""
    streams = _words(_part(state, _HEAD - 4, 4))[0]
    counts = _words(_part(state, _HEAD, min(4 * streams, len(state) - _HEAD) // 4 * 4))
    before = next((number for number, count in enumerate(counts) if count), streams)
    if before == streams:
        raise CannotMove("it has no cells")
    return counts[before], (before, streams - before - 1), _HEAD + 4 * (before + 1)


def _to_f16(keys: Bytes) -> Bytes:
    """Every bf16 in the range of f16 is one. Raises CannotMove for others."""
    with np.errstate(over="ignore"):
        found = (keys.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float16)
    if not np.isfinite(found).all():
        raise CannotMove("a key is out of the range of f16")
    return found.view(np.uint8)


def _to_bf16(keys: Bytes) -> Bytes:
    """To the nearest; to the even one of two."""
    bits = keys.view(np.float16).astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(np.uint8)


def _part(state: Bytes, at: int, size: int) -> Bytes:
    if size < 0 or at + size > len(state):
        raise CannotMove("it is shorter than it says")
    return state[at : at + size]


def _words(part: Bytes) -> tuple[int, ...]:
    return tuple(int(word) for word in part.view(np.uint32))


def _bytes(words: list[int]) -> npt.NDArray[Any]:
    return np.array(words, np.uint32).view(np.uint8)
