"""What a sequence's caches hold, as bytes in host memory, and back.

First the length of a JSON table (8 bytes, little-endian), then the table: for every cache its class, its numbers, and
type and shape of its arrays. Then the arrays' bytes, in order. Only cells that a token may still see are in it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import ArraysCache, KVCache, QuantizedKVCache

from pilotfish.plugins._mlx.caches import leaves
from pilotfish.plugins._mlx.window_cache import WindowCache

Bytes = npt.NDArray[np.uint8]
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class CellCopy:
    """A table and the arrays that it describes, which are not computed yet."""

    table: bytes
    arrays: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return _LENGTH.size + len(self.table) + sum(int(array.nbytes) for array in self.arrays)

    def write(self, data: Bytes) -> int:
        """Put it into `data`, which has `size` bytes; how many were written."""
        head = _LENGTH.pack(len(self.table)) + self.table
        data[: len(head)] = np.frombuffer(head, np.uint8)
        at = len(head)
        for array in self.arrays:
            raw = np.array(mx.view(mx.contiguous(array).reshape(-1), mx.uint8))
            data[at : at + raw.nbytes] = raw
            at += raw.nbytes
        return at


def copy_of(caches: Sequence[Any]) -> CellCopy:
    """Of caches none of which is empty."""
    table, arrays = [], []
    for cache in leaves(caches):
        numbers, found = _taken(cache)
        forms = [None if array is None else [str(array.dtype).rpartition(".")[2], array.shape] for array in found]
        table.append([type(cache).__name__, numbers, forms])
        arrays += [array for array in found if array is not None]
    return CellCopy(json.dumps(table).encode(), tuple(arrays))


def put_copy(caches: Sequence[Any], data: Bytes) -> bool:
    """Make empty caches what a copy of such caches holds; False where it is of others."""
    (length,) = _LENGTH.unpack(data[: _LENGTH.size].tobytes())
    at = _LENGTH.size + length
    table = json.loads(data[_LENGTH.size : at].tobytes())
    own = list(leaves(caches))
    if [kind for kind, _, _ in table] != [type(cache).__name__ for cache in own]:
        return False
    for cache, (_, numbers, forms) in zip(own, table, strict=True):
        arrays: list[Any] = []
        for form in forms:
            array, at = (None, at) if form is None else _array(data, at, *form)
            arrays.append(array)
        _put(cache, numbers, arrays)
    return bool(at == data.nbytes)


def _array(data: Bytes, at: int, kind: str, shape: list[int]) -> tuple[Any, int]:
    dtype = getattr(mx, kind)
    end = at + dtype.size * int(np.prod(shape, dtype=np.int64))
    return mx.view(mx.array(data[at:end]), dtype).reshape(shape), end


def _taken(cache: Any) -> tuple[list[int], list[Any]]:
    if isinstance(cache, WindowCache):
        first, (keys, values) = cache.held_cells()
        return [first], [keys, values]
    if type(cache) is ArraysCache:
        return [], list(cache.cache)
    keys, values = cache.keys_and_values()
    return [cache.offset], [*keys, *values] if type(cache) is QuantizedKVCache else [keys, values]


def _put(cache: Any, numbers: list[int], arrays: list[Any]) -> None:
    if isinstance(cache, WindowCache):
        cache.put(numbers[0], *arrays)
    elif type(cache) is ArraysCache:
        cache.cache = arrays
    elif type(cache) is QuantizedKVCache:
        cache.offset = numbers[0]
        cache.keys, cache.values = arrays[:3], arrays[3:]
    else:
        assert type(cache) is KVCache
        cache.offset = numbers[0]
        cache.keys, cache.values = arrays
