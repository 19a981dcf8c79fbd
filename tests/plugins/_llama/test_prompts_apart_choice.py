"""Where a prompt is read: by its length, as the first long one found memory for, and never by what is free just now."""

from __future__ import annotations

from typing import cast

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._llama import prompts_apart
from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.prompts_apart import PromptsApart

pytestmark = pytest.mark.model  # needs libllama, and no weights

MIB = 1 << 20
MOST = 2048


class Lane:
    """All that is asked of a lane's context before anything is read."""

    size, block = 0, 512


class Memory:
    """`need` is a MiB for each token; `free` is in MiB."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.made: list[int] = []

    def reader(self, error: Exception | None = None) -> PromptsApart:
        def make(cells: int) -> CellContext:
            if error is not None:
                raise error
            self.made.append(cells)
            return cast(CellContext, object())

        return PromptsApart(make, (BF16, F16), lambda cells: cells * MIB, lambda: self.free * MIB, MOST)


@pytest.fixture(autouse=True)
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_apart, "MovedReading", lambda context, lane, kinds: context)


def apart(reader: PromptsApart, last: int) -> bool:
    return reader.begin(cast(CellContext, Lane()), last) is not None


def test_where_there_is_plenty_every_prompt_with_a_whole_block_is_read_apart() -> None:
    reader = Memory(1 << 20).reader()
    assert [apart(reader, last) for last in (511, 512, MOST)] == [False, True, True]
    assert reader.where == "with stock's cache types"


def test_the_first_long_prompt_decides_for_all_that_come() -> None:
    memory = Memory(2 * 1024)
    reader = memory.reader()
    assert apart(reader, 600)
    memory.free = 1 << 20
    assert [apart(reader, last) for last in (1024, 1025, 2000)] == [True, False, False]
    assert "up to 1024 tokens, longer ones in the lane" in reader.where
    assert "2048 MiB, and may take 1024" in reader.where
    memory.free = 1024
    assert apart(reader, 1024), "less is free than there was, and it still fits"


def test_where_not_even_the_shortest_fits_the_lane_reads_and_it_is_said() -> None:
    memory = Memory(2 * 500)
    reader = memory.reader()
    assert not apart(reader, 600)
    assert reader.where == "in the lane: a second context for 512 takes 512 MiB, and may take 500"
    memory.free = 1 << 20
    assert not apart(reader, 600)


def test_memory_that_is_gone_later_on_ends_it_for_good() -> None:
    memory = Memory(2 * 1024)
    reader = memory.reader()
    assert apart(reader, 600)
    memory.free = 599
    assert not apart(reader, 600)
    assert reader.where == "in the lane: a second context for 600 tokens takes 600 MiB, 599 are left"
    memory.free = 1 << 20
    assert not apart(reader, 600)


@pytest.mark.parametrize("error", [EngineError("no context"), MemoryError(), OSError("disk")])
def test_what_fails_once_is_not_tried_again(error: Exception) -> None:
    reader = Memory(1 << 20).reader(error)
    assert not apart(reader, 600)
    assert reader.where.startswith("in the lane: ")


def test_cells_that_stocks_types_cannot_say_cost_their_own_prompt_only() -> None:
    memory = Memory(1 << 20)
    assert not apart(memory.reader(OverflowError("too large")), 600)
    reader = memory.reader(OverflowError("too large"))
    assert not apart(reader, 600)
    assert reader.where == "with stock's cache types"
