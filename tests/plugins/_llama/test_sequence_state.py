"""States that libllama wrote, cut, joined, moved and turned into other number formats; and states that it did not."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.sequence_state import MAGIC, SequenceState, UnknownLayout, moved, parse

CELLS, LAYERS, WIDTH = 5, 2, 3


def written(
    kinds: tuple[int, int] = (F16, F16),
    cells: int = CELLS,
    *,
    first: int = 0,
    magic: int = MAGIC,
    transposed: int = 0,
    sequence: int = 0,
    streams: int = 1,
    stream: int | None = None,
    sharers: int = 1,
    keys: np.ndarray | None = None,
) -> bytes:
    """As libllama lays it out, cells from position `first` on. Numbers tell the side, the layer, the position and the
    place in the row, unless `keys` are the bits of every layer's keys."""
    stream = sequence if stream is None else stream
    positions = np.arange(first, first + cells)
    parts = [struct.pack("<3I", magic, sequence, streams), bytes(4 * stream), struct.pack("<I", cells)]
    for position in positions:
        parts.append(struct.pack(f"<{2 + sharers}I", position, sharers, *range(sequence, sequence + sharers)))
    parts.append(struct.pack("<2I", transposed, LAYERS))
    for side, kind in enumerate(kinds):
        for layer in range(LAYERS):
            numbers = (64 * side + 32 * layer + positions[:, None] * WIDTH + np.arange(WIDTH)).astype(np.float32) / 8
            bits = bits_of(numbers, kind) if side or keys is None else keys
            parts += [struct.pack("<IQ", kind, 2 * WIDTH), bits.tobytes()]
    return b"".join([*parts, bytes(4 * (streams - stream - 1))])


def bits_of(numbers: np.ndarray, kind: int) -> np.ndarray:
    if kind == F16:
        return numbers.astype(np.float16).view(np.uint16)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


def read(raw: bytes) -> SequenceState:
    return parse(np.frombuffer(raw, np.uint8))


def no_cells(sequence: int = 0, streams: int = 1) -> bytes:
    return struct.pack("<3I", MAGIC, sequence, streams) + bytes(4 * streams)


def empty(sequence: int = 0, streams: int = 1) -> SequenceState:
    return read(no_cells(sequence, streams))


def test_it_is_taken_apart() -> None:
    state = read(written(first=7))
    assert (state.cells, state.positions.tolist()) == (CELLS, [7, 8, 9, 10, 11])
    assert [len(side) for side in state.sides] == [LAYERS, LAYERS]
    assert state.sides[1][1].rows.shape == (CELLS, 2 * WIDTH)


@pytest.mark.parametrize(("sequence", "streams"), [(0, 1), (0, 4), (2, 4), (3, 4)])
@pytest.mark.parametrize("cells", [1, CELLS])
@pytest.mark.parametrize("first", [0, 7])
def test_what_was_read_is_written_again(sequence: int, streams: int, cells: int, first: int) -> None:
    raw = written(cells=cells, first=first, sequence=sequence, streams=streams)
    assert read(raw).written().tobytes() == raw
    assert read(raw).alone().written().tobytes() == written(cells=cells, first=first)


def test_one_without_cells_is_written_again() -> None:
    assert empty(1, 3).written().tobytes() == no_cells(1, 3)


def test_rows_of_any_type_are_written_again() -> None:
    assert read(written((BF16, 8))).written().tobytes() == written((BF16, 8))


def test_parts_put_together_are_the_whole() -> None:
    raw = written(sequence=1, streams=3)
    whole = read(raw)
    assert whole.part(0, 0).written(whole.part(0, 2), whole.part(2, CELLS)).tobytes() == raw
    assert whole.part(2, CELLS).written().tobytes() == written(cells=CELLS - 2, first=2, sequence=1, streams=3)


def test_cells_in_the_middle_go_and_everything_else_stays() -> None:
    whole = read(written((BF16, F16), sequence=1, streams=3))
    moves = bytearray(whole.part(3, CELLS).alone().written().tobytes())
    for i in range(CELLS - 3):
        struct.pack_into("<I", moves, 16 + 12 * i, 1 + i)  # moved down by the library
    cut = parse(whole.part(0, 1).written(read(bytes(moves))))
    assert (cut.sequence, cut.streams, cut.positions.tolist()) == (1, 3, [0, 1, 2])
    for side, side_before in zip(cut.sides, whole.sides, strict=True):
        for layer, before in zip(side, side_before, strict=True):
            assert layer.kind == before.kind
            assert np.array_equal(layer.rows, before.rows[[0, 3, 4]])


def test_keys_change_their_format_and_values_do_not() -> None:
    there = moved(read(written()), (BF16, F16), empty())
    assert there.tobytes() == written((BF16, F16))
    assert moved(parse(there), (F16, F16), empty()).tobytes() == written()
    assert parse(there).with_keys(BF16, F16).written().tobytes() == written()
    assert read(written()).with_keys(F16, BF16).written().tobytes() == written((BF16, F16))


@pytest.mark.parametrize("values", [F16, 8])
def test_values_may_be_of_any_type_where_keys_change_theirs(values: int) -> None:
    assert read(written((BF16, values))).with_keys(BF16, F16).written().tobytes() == written((F16, values))


def test_every_bf16_in_the_normal_range_of_f16_survives_the_way_there_and_back() -> None:
    exponents = np.arange(127 - 14, 127 + 16, dtype=np.uint16) << 7
    keys = (exponents[:, None] + np.arange(128, dtype=np.uint16)).reshape(-1)
    keys = np.concatenate([keys, keys | 0x8000])
    raw = written((BF16, F16), len(keys) // WIDTH, keys=keys)
    assert read(raw).with_keys(BF16, F16).with_keys(F16, BF16).written().tobytes() == raw


def test_a_key_that_f16_cannot_hold_is_not_moved() -> None:
    large = read(written((BF16, F16), 1, keys=bits_of(np.array([1.0, 2.0, 1e6], np.float32), BF16)))
    with pytest.raises(OverflowError, match="larger than f16"):
        large.with_keys(BF16, F16)
    with pytest.raises(OverflowError, match="larger than f16"):
        moved(large, (F16, F16), empty())


@pytest.mark.parametrize(("raw", "types"), [(written(), "[1]"), (written((8, F16)), "[8]"), (no_cells(), "[]")])
def test_keys_that_are_not_of_the_type_they_should_be_are_left_alone(raw: bytes, types: str) -> None:
    with pytest.raises(UnknownLayout) as error:
        read(raw).with_keys(BF16, F16)
    assert f"keys of the types {types};" in str(error.value)


@pytest.mark.parametrize("kinds", [(8, 8), (F16, 8)])
def test_what_has_not_16_bits_is_not_moved(kinds: tuple[int, int]) -> None:
    with pytest.raises(UnknownLayout, match="number format 8"):
        moved(read(written(kinds)), (BF16, F16), empty())


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_they_come_to_the_sequence_and_the_stream_that_they_are_for(sequence: int) -> None:
    there = moved(read(written()), (BF16, F16), empty(sequence, 3))
    assert there.tobytes() == written((BF16, F16), sequence=sequence, streams=3)
    assert moved(parse(there), (F16, F16), empty()).tobytes() == written()


def test_the_first_cells_are_taken_over_bit_for_bit_from_the_one_that_is_continued() -> None:
    raw = bytearray(written((BF16, F16), cells=2))
    raw[-1] ^= 0x55
    raw[60] ^= 0x01
    kept = read(bytes(raw))
    result = parse(moved(read(written()), (BF16, F16), kept))
    whole = read(written((BF16, F16)))
    for side in (0, 1):
        for layer, before, after in zip(result.sides[side], kept.sides[side], whole.sides[side], strict=True):
            assert np.array_equal(layer.rows[:2], before.rows)
            assert np.array_equal(layer.rows[2:], after.rows[2:])


def with_word(raw: bytes, at: int, word: int) -> bytes:
    return raw[:at] + struct.pack("<I", word) + raw[at + 4 :]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (written(magic=MAGIC + 1), "begins in another way"),
        (written(sequence=1, streams=1, stream=0), "begins in another way"),
        (written(transposed=1), "transposed"),
        (written(sharers=2), "other sequences"),
        (with_word(written(), 24, 1), "other sequences"),
        (with_word(written(), 16, 9), "another order"),
        (written() + b"\0", "goes on"),
        (written() + bytes(4), "goes on"),
        (written()[:-1], "ends too early"),
        (written()[:-32], "ends too early"),
        (written()[:40], "ends too early"),
        (written()[:20], "ends too early"),
        (written()[:12], "ends too early"),
        (written()[:8], "ends too early"),
        (written(sequence=1, streams=2)[:16], "ends too early"),
        (with_word(written(), 8, 2) + written()[12:], "several streams"),
        (with_word(written(streams=2), len(written()), 1), "several streams"),
        (written(streams=2, stream=1), "several streams, or in another sequence's"),
        (b"", "ends too early"),
    ],
)
def test_what_is_laid_out_otherwise_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(UnknownLayout, match=why):
        read(raw)


@given(st.integers(0, len(written()) - 1), st.integers(0, 255))
def test_a_byte_that_is_another_is_refused_or_only_a_number_or_its_format(at: int, byte: int) -> None:
    raw = bytearray(written())
    raw[at] = byte
    try:
        state = read(bytes(raw))
    except UnknownLayout:
        return
    assert (state.positions.tolist(), state.streams) == ([*range(CELLS)], 1)
    assert [[layer.rows.shape for layer in side] for side in state.sides] == [[(CELLS, 2 * WIDTH)] * LAYERS] * 2
    assert state.written().tobytes() == raw


def one_layer_less(state: SequenceState) -> SequenceState:
    keys, values = state.sides
    return SequenceState(state.sequence, state.streams, state.positions, (keys[1:], values[1:]))


@pytest.mark.parametrize(
    ("source", "into", "why"),
    [
        (read(written()), read(written(cells=2)), "other rows"),
        (read(written()), one_layer_less(read(written((BF16, F16), cells=2))), "another number of layers"),
        (read(written()), read(written((BF16, F16), cells=2, first=1)), "another order"),
        (read(written(first=1)), empty(), "position 0"),
    ],
)
def test_two_that_do_not_belong_together_are_refused(source: SequenceState, into: SequenceState, why: str) -> None:
    with pytest.raises(UnknownLayout, match=why):
        moved(source, (BF16, F16), into)


def test_parts_that_leave_a_gap_are_not_put_together() -> None:
    whole = read(written())
    with pytest.raises(UnknownLayout, match="another order"):
        whole.part(0, 1).written(whole.part(2, CELLS))
