"""States of caches with windows: read in any order, joined, and written so that each cell comes to its place."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.sequence_state import LayerRows, SequenceState, UnknownLayout, lead
from pilotfish.plugins._llama.window_state import WindowState, moved_window, parse_window

WINDOW, RING, WIDTH = 4, 8, 2


def block(
    first: int, end: int, *, layers: int = 1, kinds: tuple[int, int] = (F16, F16), order: int = 0
) -> SequenceState:
    """Cells of positions from `first` to `end`, turned by `order`; every number tells its position."""
    positions = np.roll(np.arange(first, end, dtype=np.int32), order)
    numbers = np.repeat(positions[:, None], WIDTH, axis=1)
    sides = tuple(
        tuple(LayerRows(kind, bits(numbers + 100 * side, kind)) for _ in range(layers))
        for side, kind in enumerate(kinds)
    )
    return SequenceState(0, 1, positions if end > first else np.empty(0, np.int32), (sides[0], sides[1]))


def bits(numbers: np.ndarray, kind: int) -> np.ndarray:
    if kind == F16:
        return numbers.astype(np.float16).view(np.uint8)
    return np.ascontiguousarray((numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)


def numbers(layer: LayerRows) -> list[int]:
    """The first number of each row."""
    raw = layer.rows.view(np.uint16)[:, 0]
    if layer.kind == F16:
        return [int(value) for value in raw.view(np.float16)]
    return [int(value) for value in (raw.astype(np.uint32) << 16).view(np.float32)]


def state(end: int, *, kinds: tuple[int, int] = (F16, F16)) -> WindowState:
    return WindowState(block(0, end, layers=2, kinds=kinds), block(max(0, end - WINDOW), end, kinds=kinds))


def raw(whole: SequenceState, window: SequenceState) -> np.ndarray:
    return np.concatenate([lead(0), *whole.block([whole]), *window.block([window])])


@pytest.mark.parametrize("turned", range(4))
def test_the_windows_cells_are_read_in_the_order_of_their_positions(turned: int) -> None:
    found = parse_window(raw(block(0, 10), block(6, 10, order=turned)))
    assert (found.cells, found.window.positions.tolist()) == (10, [6, 7, 8, 9])
    assert numbers(found.window.sides[0][0]) == [6, 7, 8, 9]
    assert numbers(found.window.sides[1][0]) == [106, 107, 108, 109]


@pytest.mark.parametrize("end", [1, 3, 7, 8, 9, 13, 15, 16, 17, 31])
def test_every_cell_is_written_to_its_place_in_the_ring(end: int) -> None:
    found = state(end)
    written = found.written(RING)
    places = read_places(written, found)
    for position in range(max(0, end - WINDOW), end):
        assert places[position % RING] == (position, position)
    if end > RING and end % RING:
        assert places[end % RING][0] == end  # to be cut, so that the next token comes here
    else:
        assert len(places) == min(end, RING)


def read_places(written: np.ndarray, found: WindowState) -> list[tuple[int, int]]:
    """(position, key) of the window's cells in the order in which they are written."""
    from pilotfish.plugins._llama.sequence_state import opened, read_block

    reader, sequence = opened(written)
    assert read_block(reader, sequence).cells == found.cells
    window = read_block(reader, sequence)
    assert reader.left == 0
    return list(zip(window.positions.tolist(), numbers(window.sides[0][0]), strict=True))


@pytest.mark.parametrize(("held", "end"), [(0, 5), (3, 5), (5, 30), (20, 22), (20, 40)])
def test_what_is_held_keeps_its_bits_and_the_rest_is_turned_into_its_kinds(held: int, end: int) -> None:
    lane, read = state(held, kinds=(BF16, F16)), state(end)
    lane.whole.sides[0][0].rows[:] = 7  # bits that f16 would not give
    found = parse_window(moved_window(read, (BF16, F16), lane))
    assert found.cells == end
    assert found.window.positions.tolist() == list(range(max(0, end - WINDOW), end))
    keys = found.whole.sides[0][0]
    assert keys.kind == BF16
    assert (keys.rows[:held] == 7).all()
    assert numbers(keys)[held:] == list(range(held, end))
    assert numbers(found.window.sides[0][0]) == found.window.positions.tolist()


def test_nothing_is_read_and_written_as_nothing() -> None:
    empty = WindowState(block(0, 0), block(0, 0))
    assert parse_window(empty.packed()).cells == 0
    assert empty.written(RING).tobytes() == empty.packed().tobytes()


@pytest.mark.parametrize(
    ("whole", "window", "why"),
    [
        (block(0, 10), block(6, 9), "windows that end elsewhere"),
        (block(1, 10), block(6, 10), "does not begin at position 0"),
        (block(0, 10), block(0, 0), "no cells of its windows"),
        (block(0, 10, order=3), block(6, 10), "another order"),
    ],
)
def test_what_is_laid_out_in_another_way_is_refused(whole: SequenceState, window: SequenceState, why: str) -> None:
    held = [window] if window.cells else []
    data = np.concatenate([lead(0), *whole.block([whole]), *window.block(held)])
    with pytest.raises(UnknownLayout, match=why):
        parse_window(data)


def test_a_state_with_one_cache_or_three_is_refused() -> None:
    one = np.concatenate([lead(0), *block(0, 3).block([block(0, 3)])])
    with pytest.raises(UnknownLayout):
        parse_window(one)
    three = np.concatenate([raw(block(0, 10), block(6, 10)), *block(0, 3).block([block(0, 3)])])
    with pytest.raises(UnknownLayout, match="goes on after its second cache"):
        parse_window(three)
