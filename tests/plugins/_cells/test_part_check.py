"""What the whole model shows goes before what its first blocks show."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pilotfish.plugins._cells import part_check
from pilotfish.plugins._cells.lane_check import LaneCheck
from pilotfish.plugins._cells.part_check import looked_at_further

UNTRIED = LaneCheck((1, 2), False, "no time to try width 4, 8", complete=False, max_context=256)
PART = LaneCheck((1, 2, 4, 8), True, "")


def test_what_there_was_no_time_for_is_told_by_the_part() -> None:
    assert UNTRIED.told_by(PART) == PART


def test_a_width_that_differed_in_the_whole_model_is_none_of_the_lane() -> None:
    whole = LaneCheck((1, 2), False, "width 4 differs", complete=False, different=(4,))
    found = whole.told_by(PART)
    assert found.widths == (1, 2, 8)
    assert "width 4 differs" in found.reason
    assert found.complete


def test_cells_that_depended_on_their_block_in_the_whole_model_do_so() -> None:
    assert not LaneCheck((1, 2), False, "cells differ", complete=False, mixed=True).told_by(PART).exact_cache


@pytest.mark.parametrize(("whole", "padded"), [((1,), True), ((1, 2), False), ((2, 4), False)])
def test_padded_steps_are_taken_from_the_part_only_where_nothing_agreed(whole: tuple[int, ...], padded: bool) -> None:
    part, known = LaneCheck((2, 4, 8), True, "padded"), LaneCheck(whole, False, "", complete=False)
    assert known.told_by(part) == (part if padded else known)


@pytest.mark.parametrize("agree", [True, False])
def test_whether_cells_depend_on_their_block_is_asked_of_the_whole_model(
    monkeypatch: pytest.MonkeyPatch, agree: bool
) -> None:
    part = SimpleNamespace(kept=1, blocks=30)
    monkeypatch.setattr(part_check, "first_blocks", lambda pin, state: nullcontext(part))
    monkeypatch.setattr(part_check, "_context", lambda *arguments: nullcontext())
    monkeypatch.setattr(part_check, "check", lambda *arguments, **options: PART)
    monkeypatch.setattr(part_check, "cells_agree", lambda whole, widths: agree)
    dialect: Any = SimpleNamespace(aside=nullcontext, experts=lambda pin: 0)
    nobody: Any = SimpleNamespace(name="m", state_dir=None)
    found = looked_at_further(dialect, nobody, nobody, nobody, nobody, (2, 4, 8), UNTRIED)
    assert (found.widths, found.exact_cache) == (PART.widths, agree)
