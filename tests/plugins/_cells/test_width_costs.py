"""Widths timed at load where other machines compute: the first forward of each is no measure of it."""

from __future__ import annotations

from typing import Any, cast

from pilotfish.lab.fakes import FakeClock
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.width_costs import width_costs

STEP, ASKING = 0.06, 0.2  # seconds; of a far end about the shapes of a width


class DistantContext:
    """Every forward takes STEP and a tenth of that for each further row; the first of a width ASKING more."""

    def __init__(self, clock: FakeClock) -> None:
        self.widths: list[int] = []
        self.size, self._clock = 0, clock

    def forward(self, tokens: Any, width: int) -> None:
        assert len(tokens) == width
        self._clock.advance(STEP * (1 + 0.1 * (width - 1)) + ASKING * (width not in self.widths))
        self.widths.append(width)
        self.size += width

    def step(self, token: int) -> None:
        self.forward([token], 1)

    def row(self, i: int) -> None:
        pass

    def clear(self) -> None:
        self.size = 0


def timed(widths: tuple[int, ...], seconds: float) -> tuple[dict[int, float], DistantContext]:
    clock = FakeClock()
    context = DistantContext(clock)
    costs = width_costs(cast(CellContext, context), widths, seconds=seconds, clock=clock)
    assert all(position == 0 for _, position, _ in costs)
    assert context.size == 0
    return {width: round(taken / STEP, 3) for width, _, taken in costs}, context


def test_every_width_is_forwarded_before_it_is_timed() -> None:
    found, _ = timed((1, 2, 3, 4, 16), 60.0)
    assert found == {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3, 16: 2.5}


def test_where_time_is_short_the_step_and_the_widest_block_come_first() -> None:
    found, context = timed((1, 2, 3, 4, 16), 1.1)
    assert list(found) == [1, 4, 16]
    assert context.widths[0] == 1


def test_a_padded_lane_begins_with_its_padding() -> None:
    found, context = timed((2, 4), 60.0)
    assert list(found) == [2, 4]
    assert 1 not in context.widths
