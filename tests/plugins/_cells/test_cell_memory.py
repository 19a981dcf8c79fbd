"""What memories can give back: windows in a ring, running states with snapshots and marks."""

from __future__ import annotations

from array import array

import pytest

from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory, window_cells

WINDOW, RING, MARGIN = 8, 32, 4
WINDOWS = CellMemory(window=WINDOW, ring=RING)
RUNNING = CellMemory(running=True, snapshots=3)


def history(memory: CellMemory, n: int) -> CellHistory:
    """Of `n` tokens, each its own position, in prompt blocks of 4."""
    found = CellHistory(4, any_prefix=True, memory=memory, margin=MARGIN)
    for at in range(0, n, 4):
        found.add_block(range(at, min(at + 4, n)))
    return found


def kept(found: CellHistory, shared: int) -> int:
    """Of a prompt that shares so many tokens."""
    return found.reusable([*range(shared), 999, 998])


@pytest.mark.parametrize(("size", "room"), [(0, 32), (5, 27), (31, 1), (32, 32), (40, 24)])
def test_a_forward_ends_with_the_ring(size: int, room: int) -> None:
    assert WINDOWS.unbroken(size) == room
    assert CELLS.unbroken(size) is None
    assert CellMemory(window=WINDOW).unbroken(size) is None


def test_before_the_ring_is_full_any_prefix_is_there() -> None:
    found = history(WINDOWS, RING - MARGIN)
    assert [kept(found, n) for n in (0, 1, 20, 28)] == [0, 1, 20, 28]


def test_a_prefix_is_kept_while_its_window_is_whole_whatever_a_forward_may_have_written_beyond() -> None:
    found = history(WINDOWS, 40)  # positions below 40 + 4 - 32 = 12 may be gone; a token sees 8
    assert [kept(found, n) for n in (12, 18, 19, 20, 40)] == [0, 0, 19, 20, 40]


def test_what_was_longer_once_has_lost_as_much() -> None:
    found = history(WINDOWS, 60)
    found.cut(45)
    assert [kept(found, n) for n in (38, 39, 45)] == [0, 39, 45]
    found.cut(0)
    found.add(range(10))
    assert kept(found, 3) == 3


def test_a_copy_has_no_more_than_is_seen() -> None:
    twin = history(CellMemory(window=WINDOW), 20).copy()
    assert [kept(twin, n) for n in (12, 18, 19, 20)] == [0, 0, 19, 20]
    assert kept(history(CellMemory(window=WINDOW), 6).copy(), 2) == 2


def test_a_running_state_leads_back_to_marks_and_nowhere_else() -> None:
    found = history(RUNNING, 20)
    found.marks = (8, 16)
    assert [kept(found, n) for n in (7, 8, 15, 17, 19, 20)] == [0, 8, 8, 16, 16, 20]
    found.cut(16)
    found.add([7])
    found.cut(8)
    assert found.marks == (8,)
    assert found.copy().marks == ()


def test_where_cells_depend_on_blocks_what_may_be_kept_is_also_there() -> None:
    found = CellHistory(4, any_prefix=False, memory=RUNNING, margin=MARGIN)
    for at in range(0, 16, 4):
        found.add_block(range(at, at + 4))
    found.marks = (4, 12)
    assert kept(found, 11) == 4
    assert found.trusted == 16
    found.add([16, 17])
    assert found.trusted == 12


@pytest.mark.parametrize(("snapshots", "widths"), [(3, (1, 2, 3, 4)), (15, (1, 2, 3, 4, 8, 16))])
def test_snapshots_bound_the_width(snapshots: int, widths: tuple[int, ...]) -> None:
    memory = CellMemory(running=True, snapshots=snapshots)
    assert memory.widths((1, 2, 3, 4, 8, 16)) == widths
    assert CELLS.widths((1, 2, 16)) == (1, 2, 16)


def test_without_snapshots_blocks_of_any_width_are_taken_back() -> None:
    memory = CellMemory(running=True)
    assert memory.restores
    assert memory.widths((1, 2, 16)) == (1, 2, 16)
    assert not CELLS.restores
    assert not RUNNING.restores


@pytest.mark.parametrize(
    ("window", "block", "cells", "expected"), [(512, 512, 4096, 1024), (512, 128, 4096, 768), (4096, 512, 2048, 2048)]
)
def test_the_ring_has_room_for_a_window_and_a_block(window: int, block: int, cells: int, expected: int) -> None:
    assert window_cells(window, block, cells) == expected
    assert window_cells(0, block, cells) == cells


def test_places_to_look_at_lie_before_each_edge_and_beyond_the_last() -> None:
    assert CellMemory(window=512, ring=1024).places == (506, 1018, 1064)
    assert CellMemory(window=512).places == (506,)
    assert CELLS.places == ()


def test_ids_stay_ids() -> None:
    assert history(WINDOWS, 5).tokens == array("i", range(5))
