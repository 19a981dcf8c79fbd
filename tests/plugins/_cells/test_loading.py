"""Loading where contexts are refused, as short memory may have it: a narrower lane, never a failed load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, FarEnd, Lane, Parity, TargetPin, WeightPin
from pilotfish.lab.fakes import fake_pin
from pilotfish.manifests import remembered
from pilotfish.plugins._cells import loading
from pilotfish.plugins._cells.cell_memory import CELLS, CellMemory
from pilotfish.plugins._cells.dialect import Dialect
from pilotfish.plugins._cells.engine import CellEngine
from pilotfish.plugins._cells.lane_check import LaneCheck
from pilotfish.plugins._cells.loading import NO_PADDING, load
from tests.manifests.builders import tiny_gguf

EXACT, STOCK = EngineSetting("bf16", "f16"), EngineSetting("f16", "f16", None)
WIDE = Lane("wide", (1, 2, 3, 4, 8), EXACT, exact_cache=True)
Refuses = Callable[[EngineSetting, int], bool]


class RefusingDialect:
    """Makes contexts of `memory` but where `refuses` says no. Nothing can be forwarded in them."""

    name, room = "fake", 16

    def __init__(self, refuses: Refuses, memory: CellMemory = CELLS) -> None:
        self._refuses, self._memory = refuses, memory
        self.tokenizer = SimpleNamespace(n_vocab=9, end_tokens=lambda: frozenset({2}))
        self.n_ctx_train = 512
        self.closed = False

    def exact_setting(self, options: EngineOptions) -> EngineSetting:
        return EXACT

    def fallback(self) -> EngineSetting:
        return STOCK

    def prompt_block(self, options: EngineOptions) -> int:
        return 64

    def candidates(self, pin: TargetPin) -> tuple[int, ...]:
        return (2, 4)

    def experts(self, pin: TargetPin) -> int:
        return 0

    def one_row_differs(self, pin: TargetPin) -> bool:
        return False

    def on_processor(self, options: EngineOptions) -> bool:
        return True

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> RefusingDialect:
        return self

    def engine_pin(self, state_dir: Path | None) -> EnginePin:
        return EnginePin("fake", "1", "f")

    def contexts(self, setting: EngineSetting, options: EngineOptions, width: int, back: int) -> Sequence[Any]:
        assert 1 <= back <= width
        if self._refuses(setting, width):
            raise EngineError(f"no room for {setting.title} and {width} rows")
        return [SimpleNamespace(cells=512, max_width=width, memory=self._memory, handle=object(), close=lambda: None)]

    def obstacle(self, context: object) -> str:
        return ""

    def close(self) -> None:
        self.closed = True


Loaded = Callable[..., CellEngine]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    file = tiny_gguf(tmp_path / "model.gguf")
    pin = replace(fake_pin(), weights=(WeightPin("sha256:0", file, file.stat().st_size),))

    def loaded(refuses: Refuses, lane: Lane | None = WIDE, memory: CellMemory = CELLS, **options: Any) -> CellEngine:
        return load(cast(Dialect, RefusingDialect(refuses, memory)), pin, lane, EngineOptions(n_ctx=512, **options))

    return loaded


def test_what_is_not_refused_is_loaded_as_the_lane_says(loaded: Loaded) -> None:
    assert loaded(lambda setting, width: False).lane == WIDE


def test_where_wide_forwards_are_refused_there_are_single_steps_in_the_same_setting(loaded: Loaded) -> None:
    lane = loaded(lambda setting, width: width > 1).lane
    assert (lane.widths, lane.setting, lane.parity) == ((1,), EXACT, Parity.NONE)
    assert "too little memory" in lane.reason


def test_where_the_setting_is_refused_there_are_single_steps_in_stocks(loaded: Loaded) -> None:
    lane = loaded(lambda setting, width: setting == EXACT).lane
    assert (lane.widths, lane.setting, lane.name) == ((1,), STOCK, STOCK.title)


def test_without_a_lane_none_is_looked_for_in_what_is_left(loaded: Loaded) -> None:
    lane = loaded(lambda setting, width: width > 1, None).lane
    assert lane.widths == (1,)
    assert "too little memory" in lane.reason


def test_where_everything_is_refused_the_first_reason_is_told(loaded: Loaded) -> None:
    with pytest.raises(EngineError, match="no room for flash, K bf16, V f16 and 16 rows"):
        loaded(lambda setting, width: True)


@pytest.mark.parametrize(("snapshots", "widths"), [(0, WIDE.widths), (3, (1, 2, 3, 4)), (7, WIDE.widths)])
def test_a_lane_is_no_wider_than_snapshots_lead_back(loaded: Loaded, snapshots: int, widths: tuple[int, ...]) -> None:
    lane = loaded(lambda setting, width: False, memory=CellMemory(running=True, snapshots=snapshots)).lane
    assert lane.widths == widths
    assert lane.reason == ""


def test_a_padded_lane_is_none_on_a_memory_that_cannot_be_cut(loaded: Loaded) -> None:
    lane = loaded(
        lambda setting, width: False,
        memory=CellMemory(running=True),
        lane=replace(WIDE, widths=(2, 4, 8)),
    ).lane
    assert (lane.widths, lane.reason) == ((1,), NO_PADDING)


def test_only_forwards_on_other_machines_are_timed_at_load(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = ((1, 0, 0.06), (8, 0, 0.08))
    monkeypatch.setattr(loading, "width_costs", lambda context, widths: costs)
    far_ends = (FarEnd("127.0.0.1:50052"),)
    assert loaded(lambda setting, width: False).costs == ()
    assert loaded(lambda setting, width: False, far_ends=far_ends).costs == costs
    running = CellMemory(running=True)
    assert loaded(lambda setting, width: False, memory=running, far_ends=far_ends).costs == ()


def test_a_lane_that_ends_at_some_length_ends_there_at_the_next_load_too(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [LaneCheck((1, 2), False, "no time to compare beyond 256 tokens", complete=True, max_context=256)]
    monkeypatch.setattr(loading, "check", lambda *words, **more: found.pop())
    monkeypatch.setattr(remembered, "SETTLED_SECONDS", 0.0)  # the model's file was just written
    lanes = [loaded(lambda setting, width: False, None, state_dir=tmp_path).lane for _ in range(2)]
    assert [(lane.widths, lane.max_context) for lane in lanes] == [((1, 2), 256)] * 2
