"""A sequence's caches: mlx-lm's own where they can be cut, ours for windows, copies of what moves on.

What mlx-lm's cache classes can do is asked by class, not by model. `KVCache` and its quantized kin are cut anywhere.
`RotatingKVCache` becomes a `WindowCache`. `ArraysCache` holds a running state: nothing is written over while another
array object refers to it, so that a copy is a list of such objects. Whatever else a model brings can be fed and
forgotten, nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory
from pilotfish.plugins._mlx.setting import Quantized
from pilotfish.plugins._mlx.window_cache import WindowCache

SPARE = 256  # tokens that a window's ring holds besides: so much of what was read or answered can be taken back
MIXED = "its memory has windows and running states, which are not taken back together here"
UNEQUAL = "its memory has windows of several sizes, which are not taken back together here"


def sequence_caches(model: Any, name: str, cells: int, block: int, quantized: Quantized | None) -> list[Any]:
    """Empty caches for one sequence of up to `cells` tokens and forwards of `block` that may be taken back.

    Raises EngineError, naming the cache that cannot be quantized.
    """
    return [_replaced(cache, name, cells, block, quantized) for cache in make_prompt_cache(model)]


def _replaced(cache: Any, name: str, cells: int, block: int, quantized: Quantized | None) -> Any:
    if type(cache) is CacheList:
        return CacheList(*(_replaced(inner, name, cells, block, quantized) for inner in cache.caches))
    if type(cache) is RotatingKVCache and not cache.keep:
        _refuse_quantized(cache, name, quantized)
        return WindowCache(cache.max_size, ring_of(cache.max_size, block, cells))
    if type(cache) is KVCache and quantized is not None:
        return QuantizedKVCache(quantized.group_size, quantized.bits)
    if type(cache) not in (KVCache, ArraysCache):
        _refuse_quantized(cache, name, quantized)
    return cache


def _refuse_quantized(cache: Any, name: str, quantized: Quantized | None) -> None:
    if quantized is not None:
        kind = type(cache).__name__
        raise EngineError(f"{name}: its cache ({kind}) cannot be quantized; leave the cache type open for this model")


def ring_of(window: int, block: int, cells: int) -> int:
    """Places of a window's ring: for the window before a block, the block, and SPARE, or for all `cells`."""
    return min(window - 1 + block + SPARE, cells + block)


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """The caches, those inside of others too."""
    for cache in caches:
        if type(cache) is CacheList:
            yield from leaves(cache.caches)
        else:
            yield cache


def memory_of(caches: Sequence[Any], cells: int) -> CellMemory:
    """What such caches can give back, where nothing is an obstacle: all windows, and their rings, are of one size."""
    if any(type(cache) is ArraysCache for cache in leaves(caches)):
        return CellMemory(running=True)
    one = next((cache for cache in leaves(caches) if isinstance(cache, WindowCache)), None)
    if one is None:
        return CELLS
    return CellMemory(window=one.window, ring=one.ring if one.ring < cells else 0, placed=True)


def obstacle_of(caches: Sequence[Any]) -> str:
    """Why no rejected token can be taken back; empty where it can."""
    known = (KVCache, QuantizedKVCache, WindowCache, ArraysCache)
    unknown = sorted({type(cache).__name__ for cache in leaves(caches) if type(cache) not in known})
    if unknown:
        return f"its cache ({', '.join(unknown)}) can be neither cut nor written back here"
    windows = {cache.window for cache in leaves(caches) if isinstance(cache, WindowCache)}
    if windows and any(type(cache) is ArraysCache for cache in leaves(caches)):
        return MIXED
    return UNEQUAL if len(windows) > 1 else ""  # each forgets at another length, a `CellMemory` tells of one


def arrays_of(caches: Sequence[Any]) -> list[Any]:
    """Everything that a forward left to be computed."""
    return [cache.state for cache in caches]


def copied_states(caches: Sequence[Any]) -> list[list[Any]]:
    """The running states as they are now."""
    return [_objects(cache.cache) for cache in leaves(caches) if type(cache) is ArraysCache]


def put_states(caches: Sequence[Any], states: Sequence[list[Any]]) -> None:
    """Make the running states what `copied_states` gave."""
    running = (cache for cache in leaves(caches) if type(cache) is ArraysCache)
    for cache, state in zip(running, states, strict=True):
        cache.cache = _objects(state)


def _objects(arrays: Sequence[Any]) -> list[Any]:
    """New objects of the same memory: `a += b` changes the object `a`, and no other."""
    return [None if array is None else array[...] for array in arrays]
