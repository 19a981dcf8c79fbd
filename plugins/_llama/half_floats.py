"""The two 16-bit number formats of cache cells, and the way from one to the other by table: 65,536 entries each."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Halves = npt.NDArray[np.uint16]

F16, BF16 = 1, 30  # ggml's numbers


def converted(values: Halves, source: int, target: int) -> Halves:
    """`values` of ggml type `source` as bits of `target`, rounded to the nearest, ties to even.

    From f16 to bf16 three bits of the mantissa are lost; back, nothing is for numbers in f16's normal range. Raises
    OverflowError for a finite bf16 that f16 cannot hold.
    """
    if source == target:
        return values
    result = _table(source)[values]
    if source == BF16 and bool(((result & 0x7FFF) == 0x7C00).any()):
        raise OverflowError("a cell is larger than f16 can say")
    return result


@functools.cache
def _table(source: int) -> Halves:
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(over="ignore"):  # what f16 cannot hold becomes infinite, and is noticed
        return _bf16_of(every.view(np.float16)) if source == F16 else _floats(every).astype(np.float16).view(np.uint16)


def _floats(bf16: Halves) -> npt.NDArray[np.float32]:
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def _bf16_of(f16: npt.NDArray[np.float16]) -> Halves:
    bits = f16.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40  # rounding would carry a NaN into another number
    return np.where(np.isnan(f16), quiet, rounded).astype(np.uint16)
