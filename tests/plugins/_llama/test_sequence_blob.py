"""States that libllama wrote, and states that it did not."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.sequence_blob import MAGIC, UnknownLayout, moved, parse

CELLS, LAYERS, WIDTH = 5, 2, 3


def written(
    kinds: tuple[int, int] = (F16, F16), cells: int = CELLS, *, magic: int = MAGIC, transposed: int = 0
) -> bytes:
    """As libllama lays it out; the numbers count up."""
    parts = [struct.pack("<4I", magic, 0, 1, cells)]
    parts += [struct.pack("<3I", position, 1, 0) for position in range(cells)]
    parts.append(struct.pack("<2I", transposed, LAYERS))
    count = 0
    for kind in kinds:
        for _ in range(LAYERS):
            numbers = np.arange(count, count + cells * WIDTH, dtype=np.float32) / 8
            bits = numbers.astype(np.float16).view(np.uint16) if kind == F16 else (numbers.view(np.uint32) >> 16)
            parts += [struct.pack("<IQ", kind, 2 * WIDTH), bits.astype(np.uint16).tobytes()]
            count += cells * WIDTH
    return b"".join(parts)


def data(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint8)


def test_it_is_taken_apart_and_put_together_byte_for_byte() -> None:
    raw = written()
    blob = parse(data(raw))
    assert (blob.cells, len(blob.sides[0]), len(blob.sides[1])) == (CELLS, LAYERS, LAYERS)
    assert blob.sides[1][1].rows.shape == (CELLS, WIDTH)
    assert moved(blob, (F16, F16)).tobytes() == raw


def test_keys_change_their_format_and_values_do_not() -> None:
    there = moved(parse(data(written())), (BF16, F16))
    assert there.tobytes() == written((BF16, F16))
    assert moved(parse(there), (F16, F16)).tobytes() == written()


def test_the_first_cells_are_taken_over_bit_for_bit_from_the_one_that_is_continued() -> None:
    raw = bytearray(written((BF16, F16), cells=2))
    raw[-1] ^= 0x55
    raw[60] ^= 0x01
    kept = parse(data(bytes(raw)))
    result = parse(moved(parse(data(written())), (BF16, F16), kept))
    whole = parse(data(written((BF16, F16))))
    for side in (0, 1):
        for layer, before, after in zip(result.sides[side], kept.sides[side], whole.sides[side], strict=True):
            assert np.array_equal(layer.rows[:2], before.rows)
            assert np.array_equal(layer.rows[2:], after.rows[2:])


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (written(magic=MAGIC + 1), "begins in another way"),
        (written(transposed=1), "transposed"),
        (written((8, 8)), "number format"),
        (written() + b"\0", "goes on"),
        (written()[:-1], "ends too early"),
        (written()[:20], "ends too early"),
        (b"", "ends too early"),
    ],
)
def test_what_is_laid_out_otherwise_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(UnknownLayout, match=why):
        parse(data(raw))


@given(st.integers(0, len(written()) - 1), st.integers(0, 255))
def test_a_byte_that_is_another_is_refused_or_only_a_number(at: int, byte: int) -> None:
    raw = bytearray(written())
    raw[at] = byte
    try:
        blob = parse(data(bytes(raw)))
    except UnknownLayout:
        return
    assert (blob.cells, len(blob.sides[0])) == (CELLS, LAYERS)


def test_two_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(UnknownLayout, match="other rows"):
        moved(parse(data(written())), (BF16, F16), parse(data(written((F16, F16), cells=2))))
