"""A sequence's state, cut and turned in other types: what is not laid out as described is left alone."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from pilotfish.plugins._llama.shifting import BF16, F16, CannotMove, alone, among, retyped, without

ROW = 8  # bytes: four keys or values


def words(*values: int) -> bytes:
    return np.array(values, dtype=np.int32).tobytes()


def layer(kind: int, rows: np.ndarray) -> bytes:
    return words(kind) + np.array([ROW], dtype=np.uint64).tobytes() + rows.tobytes()


def state(cells: int = 6, *, kind: int = F16, transposed: int = 0, sequences: int = 1, keys: np.ndarray | None = None):
    """Two layers; cell i holds i in every key and 100 + i in every value."""
    numbers = np.repeat(np.arange(cells), 4).astype(np.float16)
    if keys is None:
        keys = numbers if kind == F16 else as_bf16(numbers.astype(np.float32))
    head = words(0x67676D6C, 0, 1, cells)
    meta = b"".join(words(position, sequences, *range(sequences)) for position in range(cells))
    layers = 2 * layer(kind, keys) + 2 * layer(F16, numbers + np.float16(100))
    return np.frombuffer(head + meta + words(transposed, 2) + layers, dtype=np.uint8)


def as_bf16(numbers: np.ndarray) -> np.ndarray:
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


def test_cells_in_the_middle_go_and_everything_else_stays():
    cut = without(state(6), 1, 2)
    numbers = np.repeat([0, 3, 4, 5], 4).astype(np.float16)
    head = words(0x67676D6C, 0, 1, 4)
    meta = b"".join(words(position, 1, 0) for position in (0, 3, 4, 5))  # moved down by the library
    layers = 2 * layer(F16, numbers) + 2 * layer(F16, numbers + np.float16(100))
    assert cut.tobytes() == head + meta + words(0, 2) + layers


def test_keys_change_their_type_and_values_do_not():
    there = retyped(state(kind=BF16), F16)
    assert there.tobytes() == state(kind=F16).tobytes()
    assert retyped(there, BF16).tobytes() == state(kind=BF16).tobytes()
    assert retyped(there, F16).tobytes() == there.tobytes()


def test_every_bf16_in_the_range_of_f16_survives_the_way_there_and_back():
    exponents = np.arange(127 - 14, 127 + 16, dtype=np.uint16) << 7
    keys = (exponents[:, None] + np.arange(128, dtype=np.uint16)).reshape(-1)
    keys = np.concatenate([keys, keys | 0x8000])
    whole = state(len(keys) // 4, kind=BF16, keys=keys)
    assert retyped(retyped(whole, F16), BF16).tobytes() == whole.tobytes()


def test_a_key_that_f16_cannot_hold_is_not_moved():
    keys = as_bf16(np.array([1.0, 2.0, 3.0, 1e6], dtype=np.float32))
    with pytest.raises(CannotMove, match="range"):
        retyped(state(1, kind=BF16, keys=keys), F16)


@pytest.mark.parametrize(
    ("unlike", "says"),
    [
        (state(transposed=1), "transposed"),
        (state(sequences=2), "other sequences"),
        (np.append(state(), np.uint8(0)), "left over"),
        (state()[:40], "shorter"),
        (state()[:-30], "shorter than its layers"),
    ],
)
def test_a_state_of_another_shape_is_left_alone(unlike, says):
    with pytest.raises(CannotMove, match=says):
        without(unlike, 1, 2)


def test_cells_out_of_order_are_left_alone():
    mixed = state().copy()
    mixed[16:20].view(np.int32)[0] = 9
    with pytest.raises(CannotMove, match="order"):
        without(mixed, 1, 2)


def test_keys_of_a_third_type_are_left_alone():
    with pytest.raises(CannotMove, match="type 8"):
        retyped(state(kind=8, keys=np.zeros(24, dtype=np.float16)), F16)


@pytest.mark.parametrize("place", [(0, 0), (0, 3), (2, 1), (3, 0)])
def test_a_sequence_among_others_is_taken_out_and_put_back(place):
    among_others = among(state(), place)
    assert len(among_others) == len(state()) + 4 * sum(place)
    found, where = alone(among_others)
    assert (found.tobytes(), where) == (state().tobytes(), place)


@pytest.mark.parametrize("nothing", [among(state(), (1, 0))[:16], state()[:8], np.zeros(0, dtype=np.uint8)])
def test_a_sequence_without_cells_is_left_alone(nothing):
    with pytest.raises(CannotMove, match="no cells"):
        alone(nothing)


def test_streams_that_both_have_cells_are_left_alone():
    both = among(state(), (0, 1)).copy()
    both[-1] = 1
    with pytest.raises(CannotMove, match="several streams"):
        alone(both)
