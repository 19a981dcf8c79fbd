"""The check at load compares what there is time for, and puts nothing else into the lane. Time is the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotfish.hooks.errors import ConfigError
from pilotfish.lab.fakes import FakeClock
from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory
from pilotfish.plugins._cells.context import CellContext, Logits
from pilotfish.plugins._cells.lane_check import BUDGET_VARIABLE, EDGE, LENGTHS, LaneCheck, cells_agree, check
from pilotfish.plugins._cells.lane_check_time import MOST_AFAR, PATIENCE, PATIENCE_AFAR, STEPS_AFAR

WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, 31)
QUICK = 0.001  # seconds of a single step


class ScriptedContext:
    """Rows depend on the history's length and on the class of the forward; each forward takes its time."""

    def __init__(
        self,
        clock: FakeClock,
        step: float = QUICK,
        *,
        kind: Callable[[int, int], int] = lambda width, size: 0,
        slower: Callable[[int], float] = lambda forwards: 1.0,
        cells_differ: bool = False,
        cells: int = 512,
        memory: CellMemory = CELLS,
        row: float = 0.25,
        tells: Callable[[int, int], bytes] = lambda at, width: b"",
    ) -> None:
        self._tells = tells  # of the token at a position, in a forward of a width
        self.cells, self.block, self.n_vocab, self.size, self.memory = cells, 512, 64, 0, memory
        self._clock, self._step, self._kind, self._slower = clock, step, kind, slower
        self._cells_differ, self._more = cells_differ, row  # steps that one more row takes
        self._forwards, self.longest = 0, 0.0
        self._written: list[bool] = []  # of each cell: by a prompt block?
        self._row = 0.0

    def _run(self, tokens: int, *, prompt: bool) -> None:
        self._forwards += 1
        seconds = self._step * (1 + self._more * (tokens - 1)) * self._slower(self._forwards)
        self.longest = max(self.longest, seconds)
        self._clock.advance(seconds)
        narrow = self._cells_differ and not all(self._written[32:64] + self._written[238:270])
        self._row = self._kind(tokens, self.size) * 0.5 + narrow * 0.25
        del self._written[self.size :]
        self._written += [prompt] * tokens
        self._first, self.size = self.size, self.size + tokens

    def feed(self, tokens: Any) -> None:
        self._run(len(tokens), prompt=True)

    def forward(self, tokens: Any, width: int) -> None:
        self._run(width, prompt=False)

    def step(self, token: int) -> None:
        self._run(1, prompt=False)

    def row(self, i: int) -> Logits:
        return np.full(self.n_vocab, self._first + i + self._row, dtype=np.float32)

    def told(self, i: int) -> bytes:
        return self._tells(self._first + i, self.size - self._first)

    def cut(self, size: int) -> bool:
        self.size = min(self.size, size)
        return True

    def mark(self) -> tuple[int, ...]:
        return ()

    def clear(self) -> None:
        self.size = 0

    def wait(self) -> None:
        pass


def checked(
    step: float = QUICK, *, widths: tuple[int, ...] = WIDTHS, budget: float = 2.0, **script: Any
) -> tuple[LaneCheck, float, ScriptedContext]:
    """What was found, the seconds it took, and the context."""
    clock = FakeClock()
    context = ScriptedContext(clock, step, **script)
    started = clock()
    found = check(cast(CellContext, context), widths, budget=budget, clock=clock)
    assert context.size == 0
    return found, clock() - started, context


def test_a_quick_engine_of_one_class_gets_every_width() -> None:
    found, seconds, _ = checked()
    assert found == LaneCheck((1, *WIDTHS), exact_cache=True, reason="")
    assert seconds < 2.0


def test_a_width_that_differs_at_either_length_is_named() -> None:
    found, _, _ = checked(kind=lambda width, size: int(width == 31 or (width == 6 and size > 100)))
    assert found.widths == (1, 2, 3, 4, 8, 12, 16, 24)
    assert "width 31 differs from single steps after 64 tokens" in found.reason
    assert "width 6 differs from single steps after 270 tokens" in found.reason
    assert found.complete


def test_a_width_that_differs_in_a_later_block_is_found_where_there_is_time() -> None:
    found, _, _ = checked(kind=lambda width, size: int(width == 4 and size == 64 + 8))
    assert 4 not in found.widths


def test_widths_that_all_differ_leave_plain_decoding() -> None:
    found, _, _ = checked(kind=lambda width, size: int(width > 1))
    assert found.widths == (1,)
    assert found.complete
    assert not found.exact_cache


def test_cells_that_depend_on_their_block_are_found_out() -> None:
    found, _, _ = checked(cells_differ=True)
    assert found.widths == (1, *WIDTHS)
    assert not found.exact_cache
    assert "cells" in found.reason


def test_a_larger_model_gets_the_most_useful_widths_in_the_same_time() -> None:
    found, seconds, _ = checked(0.012)
    assert {2, 4, 8} <= set(found.widths) < {1, *WIDTHS}
    assert "no time to try width" in found.reason
    assert not found.complete
    assert seconds <= 2.0


def test_a_model_too_large_for_the_longer_length_gets_a_lane_up_to_the_edge() -> None:
    found, seconds, _ = checked(0.03)
    assert found.max_context == EDGE
    assert found.max_context > LENGTHS[0]
    assert len(found.widths) > 1
    assert not found.exact_cache  # beyond the edge nothing is known
    assert not found.complete
    assert seconds <= 2.0


def test_a_model_larger_still_gets_one_from_a_shorter_prefix() -> None:
    found, seconds, _ = checked(0.12)
    assert found.max_context == EDGE
    assert len(found.widths) > 1
    assert seconds <= 2.0


def test_a_model_too_large_for_any_costs_no_more_than_others() -> None:
    found, seconds, _ = checked(0.5)
    assert found.widths == (1,)
    assert "no time to try width 2" in found.reason
    assert seconds <= 2.0


@given(st.floats(1e-4, 1.0), st.sampled_from([(2, 3), (2, 3, 4, 6, 8, 12, 16), WIDTHS]))
def test_on_a_quiet_machine_it_ends_in_time_at_any_size(step: float, widths: tuple[int, ...]) -> None:
    _, seconds, _ = checked(step, widths=widths)
    assert seconds <= 2.0 + 2 * step  # the last block of each length


def test_the_first_forward_may_wait_for_the_weights() -> None:
    found, _, _ = checked(slower=lambda forwards: 1e5 if forwards == 1 else 1.0)
    assert found.complete


def test_a_disturbance_at_the_start_is_not_taken_for_a_slow_engine() -> None:
    found, _, _ = checked(slower=lambda forwards: 200.0 if forwards <= 5 else 1.0)
    assert found.complete


def test_a_busy_machine_is_given_time_before_anything_is_left_out() -> None:
    found, seconds, _ = checked(slower=lambda forwards: 1.0 if forwards <= 4 or forwards % 2 else 6.0)
    assert found.complete
    assert seconds > 0.5


def test_a_short_context_is_compared_at_the_shorter_length_alone() -> None:
    found, _, _ = checked(cells=256)
    assert found == LaneCheck((1, *WIDTHS), exact_cache=True, reason="")
    found, _, _ = checked(cells=300)
    assert found.widths == (1,)
    assert "no room" in found.reason


@example(0.0075, 63, 186.0, {*((width, False) for width in WIDTHS if width != 4), (4, True)})  # padding is tried last
@given(
    st.floats(1e-4, 1.0),
    st.integers(1, 400),
    st.floats(1.0, 300.0),
    st.sets(st.tuples(st.sampled_from(WIDTHS), st.booleans())),
)
def test_whatever_happens_only_what_was_compared_is_in_the_lane_and_time_is_bounded(
    step: float, disturbed: int, slower: float, different: set[tuple[int, bool]]
) -> None:
    def kind(width: int, size: int) -> int:
        return int((width, size > EDGE) in different)

    found, seconds, context = checked(step, kind=kind, slower=lambda forwards: slower if forwards > disturbed else 1.0)
    assert found.widths[0] == 1
    for width in found.widths[1:]:
        assert (width, False) not in different
        assert (width, True) not in different or found.max_context == EDGE
    compared = {*found.widths, *(width for width, _ in different)}
    assert not found.complete or compared >= set(WIDTHS)
    assert seconds <= PATIENCE * 2.0 + 4 * context.longest + 4 * step


def test_the_environment_says_how_long_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def widths(seconds: str) -> tuple[int, ...]:
        clock = FakeClock()
        monkeypatch.setenv(BUDGET_VARIABLE, seconds)
        return check(cast(CellContext, ScriptedContext(clock, 0.1)), WIDTHS, clock=clock).widths

    assert widths("0") == (1,)
    assert widths("100") == (1, *WIDTHS)
    with pytest.raises(ConfigError, match=BUDGET_VARIABLE):
        widths("soon")


def checked_afar(step: float, **script: Any) -> tuple[LaneCheck, float]:
    """What is found of a model that other machines compute, and the seconds it took."""
    clock = FakeClock()
    context, started = ScriptedContext(clock, step, **script), clock()
    found = check(cast(CellContext, context), (2, 3, 4, 6, 8, 12, 16), budget=2.0, clock=clock, afar=True)
    return found, clock() - started


@pytest.mark.parametrize("step", [0.065, 0.2, 0.28])
def test_a_model_on_other_machines_is_given_time_by_its_own_steps(step: float) -> None:
    found, seconds = checked_afar(step, row=0.15)
    assert found == LaneCheck((1, 2, 3, 4, 6, 8, 12, 16), exact_cache=True, reason="")
    assert 2.0 < seconds <= STEPS_AFAR * step


def test_a_quick_one_takes_no_longer_than_here() -> None:
    found, seconds = checked_afar(0.005)
    assert found.complete
    assert seconds <= 2.0


def test_what_is_left_out_of_a_very_slow_one_is_not_tried_at_every_load() -> None:
    found, seconds = checked_afar(1.0)
    assert "no time to compare beyond 256 tokens" in found.reason
    assert (found.max_context, found.complete) == (EDGE, True)
    assert seconds <= MOST_AFAR


def test_but_is_where_the_machines_were_busy_meanwhile() -> None:
    found, seconds = checked_afar(1.0, slower=lambda forwards: 1.0 if forwards <= 4 else 4.0)
    assert not found.complete
    assert seconds <= PATIENCE_AFAR * MOST_AFAR + 4 * 16


def only_single_steps_differ(width: int, size: int) -> int:
    return int(width == 1)


def test_where_one_row_alone_differs_and_a_second_costs_nothing_steps_are_padded() -> None:
    found, _, _ = checked(kind=only_single_steps_differ, row=0.0)
    assert found.widths == WIDTHS
    assert "padded to 2" in found.reason
    assert found.complete


def test_where_a_second_row_costs_time_they_are_not() -> None:
    found, _, _ = checked(kind=only_single_steps_differ, row=0.1)
    assert found.widths == (1,)
    assert "differs from single steps" in found.reason


def test_padding_helps_nothing_where_wider_forwards_differ_among_each_other() -> None:
    found, _, _ = checked(kind=lambda width, size: width, row=0.0)
    assert found.widths == (1,)
    assert "differs from single steps" in found.reason


def test_windows_are_looked_at_over_their_edges_as_far_as_there_is_time() -> None:
    memory = CellMemory(window=300, ring=640)

    def beyond(width: int, size: int) -> int:
        return int(width > 8 and size > 640)

    found, _, _ = checked(kind=beyond, memory=memory, cells=1024, budget=60.0)
    assert found.widths == (1, 2, 3, 4, 6, 8)
    assert "after 680 tokens" in found.reason
    assert checked(kind=beyond, memory=memory, cells=1024)[0].max_context is None  # in what time there is


def test_experts_are_looked_at_with_few_ids() -> None:
    seen: list[set[int]] = []

    class Watched(ScriptedContext):
        def forward(self, tokens: Any, width: int) -> None:
            seen.append(set(map(int, tokens)))
            super().forward(tokens, width)

    for experts in (False, True):
        seen.clear()
        clock = FakeClock()
        context = Watched(clock, row=0.0)
        found = check(cast(CellContext, context), WIDTHS, budget=60.0, clock=clock, experts=experts)
        assert found.widths == (1, *WIDTHS)
        assert any(ids <= {0, 1} for ids in seen if len(ids) > 1) == experts


@pytest.mark.parametrize(("row", "widths"), [(0.25, (1,)), (0.0, WIDTHS)])
def test_where_one_row_may_differ_it_is_compared_with_no_wider_forward(row: float, widths: tuple[int, ...]) -> None:
    """What differs there may show once in a hundred rows, which a check at load does not see."""
    clock = FakeClock()
    context = cast(CellContext, ScriptedContext(clock, row=row))
    found = check(context, WIDTHS, budget=2.0, clock=clock, alone=True)
    assert found.widths == widths
    assert found.complete


def test_a_model_of_which_a_part_tells_the_rest_takes_half_the_time() -> None:
    clock = FakeClock()
    context = ScriptedContext(clock, 0.03)
    found = check(cast(CellContext, context), WIDTHS, budget=2.0, clock=clock, hurried=True)
    assert not found.complete
    assert clock() <= 1.3


def test_a_small_model_is_given_the_time_it_needs_also_where_a_part_could_tell() -> None:
    clock = FakeClock()
    found = check(cast(CellContext, ScriptedContext(clock)), WIDTHS, budget=2.0, clock=clock, hurried=True)
    assert found == LaneCheck((1, *WIDTHS), exact_cache=True, reason="")


def test_what_padding_costs_is_asked_of_the_whole_model() -> None:
    clock = FakeClock()
    alone = ScriptedContext(clock, kind=lambda width, size: int(width == 1), row=0.0)
    for pays, widths in ((True, (2, *WIDTHS[1:])), (False, (1,))):
        found = check(
            cast(CellContext, alone), WIDTHS, budget=2.0, clock=clock, padding_pays=lambda pays=pays: bool(pays)
        )
        assert found.widths == widths


def test_what_differed_is_told() -> None:
    found, _, _ = checked(kind=lambda width, size: int(width == 6), cells_differ=True)
    assert (found.different, found.mixed) == ((6,), True)


def test_rows_that_are_alike_are_not_enough_where_more_is_told() -> None:
    found, _, _ = checked(tells=lambda at, width: b"other" if width == 6 and at == 70 else b"")
    assert found.different == (6,)
    assert found.exact_cache


@pytest.mark.parametrize("widths", [(1, 2, 8), (2, 4, 12)])
@pytest.mark.parametrize("differ", [True, False])
def test_whether_cells_agree_can_be_asked_alone(differ: bool, widths: tuple[int, ...]) -> None:
    context = ScriptedContext(FakeClock(), cells_differ=differ)
    assert cells_agree(cast(CellContext, context), widths) is not differ
    assert context.size == 0
