"""A slot whose long prompts are read elsewhere: when, what it holds meanwhile, and what becomes of failures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.prompt_reading import is_worth
from pilotfish.plugins._cells.slot import CellSlot
from tests.plugins._cells.fake_cells import BLOCK, FakeContext, slot, written

PROMPT = list(range(100, 100 + 3 * BLOCK + 2))
LAST = len(PROMPT) - 1
APART = 50  # is added to the width of cells that were read apart


class FakeReader:
    """Reads everything apart; `broken` names the call that fails, once it was called `after` times."""

    def __init__(self, broken: str = "", after: int = 0) -> None:
        self.where = ""
        self.broken, self.after = broken, after
        self.begun = self.closed = 0

    def begin(self, lane: FakeContext, last: int) -> FakeReading | None:
        if self.where:
            return None
        self.begun += 1
        return FakeReading(self, lane)

    def failed(self, error: Exception) -> None:
        self.where = str(error)

    def count(self, call: str) -> None:
        if call == self.broken:
            self.after -= 1
            if self.after < 0:
                raise EngineError("it failed")


class FakeReading:
    def __init__(self, reader: FakeReader, lane: FakeContext) -> None:
        self._reader, self._lane = reader, lane
        self._cells: list[tuple[int, int]] = []

    def feed(self, ids: Sequence[int]) -> None:
        self._reader.count("feed")
        self._cells += [(token, APART + len(ids)) for token in ids]

    def finish(self) -> None:
        self._reader.count("finish")
        self._lane.written += self._cells

    def close(self) -> None:
        self._reader.closed += 1


def reading(reader: FakeReader, kept: Sequence[int] = ()) -> CellSlot:
    """A slot that holds `kept` and reads with `reader`."""
    mine = slot()
    mine.context.feed(list(kept))
    mine.history.add(kept)
    mine.reader = reader  # type: ignore[assignment]
    return mine


def feed(mine: CellSlot, prompt: Sequence[int] = PROMPT) -> list[int]:
    """What was left after every block."""
    left = [mine.feed_block(prompt, len(prompt) - 1)]
    while left[-1]:
        left.append(mine.feed_block(prompt, len(prompt) - 1))
    return left


def test_the_cells_come_when_the_prompt_is_read_and_not_before() -> None:
    mine = reading(FakeReader(), PROMPT[:2])
    mine.feed_block(PROMPT, LAST)
    assert (len(mine.history), mine.context.size) == (BLOCK, 2)
    assert feed(mine) == [LAST - 2 * BLOCK, LAST - 3 * BLOCK, 0]
    assert [token for token, _ in written(mine)] == PROMPT[:LAST]
    assert [width for _, width in written(mine)] == [2, 2, *[APART + 2] * 2, *[APART + BLOCK] * (2 * BLOCK), APART + 1]


def test_a_prompt_that_is_stopped_keeps_what_was_read() -> None:
    mine = reading(FakeReader())
    mine.feed_block(PROMPT, LAST)
    mine.settle()
    assert list(mine.tokens) == [token for token, _ in written(mine)] == PROMPT[:BLOCK]
    mine.settle()  # nothing is under way any more


def test_a_slot_that_is_cleared_gives_a_reading_up() -> None:
    reader = FakeReader()
    mine = reading(reader)
    mine.feed_block(PROMPT, LAST)
    mine.clear()
    assert (reader.closed, len(mine.history), mine.context.size) == (1, 0, 0)
    feed(mine)
    assert reader.begun == 2


@pytest.mark.parametrize(("broken", "after"), [("feed", 0), ("feed", 2), ("finish", 0)])
def test_what_fails_apart_is_read_in_the_lane_and_so_are_later_prompts(broken: str, after: int) -> None:
    reader = FakeReader(broken, after)
    mine = reading(reader, PROMPT[:2])
    feed(mine)
    assert [token for token, _ in written(mine)] == PROMPT[:LAST]
    assert max(width for _, width in written(mine)) <= BLOCK
    assert (reader.begun, reader.closed, reader.where) == (1, 1, "it failed")
    mine.clear()
    feed(mine)
    assert reader.begun == 1


def test_a_reading_that_fails_as_its_prompt_is_stopped_leaves_what_was_there() -> None:
    mine = reading(FakeReader("finish"), PROMPT[:2])
    mine.feed_block(PROMPT, LAST)
    mine.settle()
    assert list(mine.tokens) == [token for token, _ in written(mine)] == PROMPT[:2]


def test_without_a_reader_the_lane_reads() -> None:
    mine = slot()
    feed(mine)
    assert isinstance(mine.context, FakeContext)
    assert [width for _, width in written(mine)] == [*[BLOCK] * (3 * BLOCK), 1]


@pytest.mark.parametrize(
    ("kept", "last", "worth"),
    [
        (0, BLOCK - 1, False),
        (0, BLOCK, True),
        (1, 2 * BLOCK - 1, False),
        (1, 2 * BLOCK, True),
        (BLOCK, 2 * BLOCK, True),
        (10 * BLOCK + 1, 12 * BLOCK - 1, False),
    ],
)
def test_what_has_no_whole_block_is_left_to_the_lane(kept: int, last: int, worth: bool) -> None:
    assert is_worth(kept, last, BLOCK) == worth
