"""Every number of both 16-bit formats."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.plugins._llama.half_floats import BF16, F16, converted

EVERY = np.arange(1 << 16, dtype=np.uint16)


def as_floats(bits: np.ndarray, kind: int) -> np.ndarray:
    return bits.view(np.float16).astype(np.float64) if kind == F16 else bf16(bits)


def bf16(bits: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_no_bf16_is_nearer_to_an_f16_than_the_one_it_becomes_and_ties_are_even() -> None:
    finite = EVERY[np.isfinite(EVERY.view(np.float16))]
    found = converted(finite, F16, BF16)
    exact, got = as_floats(finite, F16), bf16(found)
    magnitude = found & 0x7FFF
    for step in (-1, 1):
        other = np.clip(magnitude.astype(np.int64) + step, 0, 0x7F80).astype(np.uint16) | (found & 0x8000)
        distance = np.abs(bf16(other) - exact) - np.abs(got - exact)
        assert (distance >= 0).all()
        assert ((distance > 0) | (magnitude % 2 == 0) | (other == found)).all()


def test_what_is_no_number_stays_none() -> None:
    odd = EVERY[~np.isfinite(EVERY.view(np.float16))]
    assert np.array_equal(np.isnan(as_floats(odd, F16)), np.isnan(bf16(converted(odd, F16, BF16))))


def test_the_way_back_is_exact_in_the_normal_range_of_f16() -> None:
    size = np.abs(bf16(EVERY))
    normal = EVERY[(size >= 2.0**-14) & (size < 65536)]
    there = converted(normal, BF16, F16)
    assert np.array_equal(as_floats(there, F16), bf16(normal))
    assert np.array_equal(converted(there, F16, BF16), normal)


def test_a_number_too_large_for_f16_is_refused() -> None:
    with pytest.raises(OverflowError, match="larger than f16"):
        converted(np.array([0x3F80, 0x4780], np.uint16), BF16, F16)  # 1 and 65,536


def test_the_same_format_is_left_as_it_is() -> None:
    assert converted(EVERY, F16, F16) is EVERY
