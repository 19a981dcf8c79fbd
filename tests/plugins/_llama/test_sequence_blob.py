"""States that libllama wrote, and states that it did not."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.sequence_blob import MAGIC, SequenceBlob, UnknownLayout, moved, parse

CELLS, LAYERS, WIDTH = 5, 2, 3


def written(
    kinds: tuple[int, int] = (F16, F16),
    cells: int = CELLS,
    *,
    magic: int = MAGIC,
    transposed: int = 0,
    sequence: int = 0,
    streams: int = 1,
) -> bytes:
    """As libllama lays it out; the numbers count up."""
    parts = [struct.pack("<3I", magic, sequence, streams), bytes(4 * sequence), struct.pack("<I", cells)]
    parts += [struct.pack("<3I", position, 1, sequence) for position in range(cells)]
    parts.append(struct.pack("<2I", transposed, LAYERS))
    count = 0
    for kind in kinds:
        for _ in range(LAYERS):
            numbers = np.arange(count, count + cells * WIDTH, dtype=np.float32) / 8
            bits = numbers.astype(np.float16).view(np.uint16) if kind == F16 else (numbers.view(np.uint32) >> 16)
            parts += [struct.pack("<IQ", kind, 2 * WIDTH), bits.astype(np.uint16).tobytes()]
            count += cells * WIDTH
    return b"".join([*parts, bytes(4 * (streams - sequence - 1))])


def empty(sequence: int = 0, streams: int = 1) -> SequenceBlob:
    return parse(data(struct.pack("<3I", MAGIC, sequence, streams) + bytes(4 * streams)))


def data(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint8)


def test_it_is_taken_apart_and_put_together_byte_for_byte() -> None:
    raw = written()
    blob = parse(data(raw))
    assert (blob.cells, len(blob.sides[0]), len(blob.sides[1])) == (CELLS, LAYERS, LAYERS)
    assert blob.sides[1][1].rows.shape == (CELLS, WIDTH)
    assert moved(blob, (F16, F16), empty()).tobytes() == raw


def test_keys_change_their_format_and_values_do_not() -> None:
    there = moved(parse(data(written())), (BF16, F16), empty())
    assert there.tobytes() == written((BF16, F16))
    assert moved(parse(there), (F16, F16), empty()).tobytes() == written()


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_they_come_to_the_sequence_and_the_stream_that_they_are_for(sequence: int) -> None:
    there = moved(parse(data(written())), (BF16, F16), empty(sequence, 3))
    assert there.tobytes() == written((BF16, F16), sequence=sequence, streams=3)
    assert moved(parse(there), (F16, F16), empty()).tobytes() == written()


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
        (written()[:8] + struct.pack("<I", 2) + written()[12:] * 2, "several streams"),
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
    assert blob.streams == 1


def test_two_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(UnknownLayout, match="other rows"):
        moved(parse(data(written())), (BF16, F16), parse(data(written((F16, F16), cells=2))))
