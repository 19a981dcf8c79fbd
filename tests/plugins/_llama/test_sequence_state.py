"""A sequence's state, cut, joined and turned into other types: what is not laid out as described is left alone."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from pilotfish.plugins._llama.sequence_state import BF16, F16, CannotMove, SequenceState

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


def among(whole: np.ndarray, before: int, behind: int) -> np.ndarray:
    """The same in a context of more streams."""
    head = words(0x67676D6C, 0, before + 1 + behind, *[0] * before)
    return np.frombuffer(head + whole[12:].tobytes() + bytes(4 * behind), dtype=np.uint8)


def test_what_was_read_is_written_again():
    for whole in (state(), state(1), among(state(), 0, 3), among(state(), 2, 1), among(state(), 3, 0)):
        found = SequenceState.read(whole)
        assert found.written().tobytes() == whole.tobytes()
        assert found.written(alone=True).tobytes() == state(len(found.cells)).tobytes()


def test_cells_in_the_middle_go_and_everything_else_stays():
    whole = SequenceState.read(state(6))
    cut = whole.part(0, 1).followed_by(whole.part(3, 6))
    numbers = np.repeat([0, 3, 4, 5], 4).astype(np.float16)
    assert cut.cells[:, 0].tolist() == [0, 3, 4, 5]  # moved down by the library
    assert all(kind == F16 for kind, _ in (*cut.keys, *cut.values))
    assert [rows.tobytes() for _, rows in cut.keys] == [numbers.tobytes()] * 2
    assert [rows.tobytes() for _, rows in cut.values] == [(numbers + np.float16(100)).tobytes()] * 2


def test_keys_change_their_type_and_values_do_not():
    there = SequenceState.read(state(kind=BF16)).with_keys(F16)
    assert there.written().tobytes() == state(kind=F16).tobytes()
    assert there.with_keys(BF16).written().tobytes() == state(kind=BF16).tobytes()
    with pytest.raises(CannotMove, match=r"types \[1\]"):
        there.with_keys(F16)


def test_every_bf16_in_the_range_of_f16_survives_the_way_there_and_back():
    exponents = np.arange(127 - 14, 127 + 16, dtype=np.uint16) << 7
    keys = (exponents[:, None] + np.arange(128, dtype=np.uint16)).reshape(-1)
    keys = np.concatenate([keys, keys | 0x8000])
    whole = state(len(keys) // 4, kind=BF16, keys=keys)
    assert SequenceState.read(whole).with_keys(F16).with_keys(BF16).written().tobytes() == whole.tobytes()


def test_a_key_that_f16_cannot_hold_is_not_moved():
    keys = as_bf16(np.array([1.0, 2.0, 3.0, 1e6], dtype=np.float32))
    with pytest.raises(CannotMove, match="range"):
        SequenceState.read(state(1, kind=BF16, keys=keys)).with_keys(F16)


MIXED = state().copy()
MIXED[16:20].view(np.int32)[0] = 9
BOTH = among(state(), 0, 1).copy()
BOTH[-1] = 1


@pytest.mark.parametrize(
    ("unlike", "says"),
    [
        (state(transposed=1), "transposed"),
        (state(sequences=2), "other sequences"),
        (np.append(state(), np.zeros(4, np.uint8)), "left over"),
        (state()[:40], "shorter"),
        (state()[:-32], "shorter"),
        (state()[:8], "shorter"),
        (np.zeros(0, np.uint8), "shorter"),
        (state()[:12], "no cells"),
        (among(state(), 1, 0)[:16], "no cells"),
        (MIXED, "order"),
        (BOTH, "several streams"),
    ],
)
def test_a_state_of_another_shape_is_left_alone(unlike, says):
    with pytest.raises(CannotMove, match=says):
        SequenceState.read(unlike)


def test_keys_of_a_third_type_are_left_alone():
    with pytest.raises(CannotMove, match=r"types \[8\]"):
        SequenceState.read(state(kind=8, keys=np.zeros(24, dtype=np.float16))).with_keys(F16)
