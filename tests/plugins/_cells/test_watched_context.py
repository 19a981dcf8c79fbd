"""What a watched context tells of a token: every operation that all widths have, and nothing that only cells decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import Operation
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.watched_context import WatchedContext

Kernel = Callable[[str, int], int]  # (operation, width) -> which code computes it


class Layers:
    """A context and its watch at once: two products of each token, one number for each cell, and a row."""

    def __init__(self, kernel: Kernel = lambda name, width: 0, *, shows: bool = True, disturbs: bool = False) -> None:
        self.name, self.cells, self.block, self.max_width, self.size = "layers", 1024, 128, 33, 0
        self._kernel, self._shows, self._disturbs = kernel, shows, disturbs
        self._watched, self._changed = 0, False

    def begin(self, width: int) -> None:
        self._watched, self._changed = width, self._disturbs

    def end(self) -> tuple[Operation, ...]:
        width, self._watched = self._watched, 0
        return tuple(self._operations(width)) if self._shows else ()

    def _operations(self, width: int) -> list[Operation]:
        padded = -(-self.size // 32) * 32
        found = [self._operation("scores", "MUL_MAT", (padded, width), width)]
        found += [self._operation(name, "MUL_MAT", (8, width), width) for name in ("up", "down")]
        if width > 1:
            found.append(self._operation("chosen", "GET_ROWS", (8, width), width))
        return [*found, Operation("scale", "NONE", (4,), b"all")]

    def _operation(self, name: str, kind: str, shape: tuple[int, ...], width: int) -> Operation:
        code = padded = self._kernel(name, width)
        if name == "scores":
            padded = shape[0]
        first = self.size - width
        slices = tuple(f"{first + i} {name} {code} {padded}".encode() for i in range(width))
        return Operation(name, kind, shape, b"", {1: slices}, "blk.weight")

    def feed(self, tokens: Sequence[int]) -> None:
        assert len(tokens) <= self.block
        self.size += len(tokens)

    def forward(self, tokens: Sequence[int], width: int) -> None:
        self.size += width

    def wait(self) -> None:
        pass

    def row(self, i: int) -> Any:
        return np.full(4, i + self._changed, np.float32)

    def clear(self) -> None:
        self.size = 0


def watched(layers: Layers) -> WatchedContext:
    return WatchedContext(cast(CellContext, layers), cast(ForwardWatch, layers))


def told(context: WatchedContext, prefix: int, width: int) -> list[bytes]:
    context.clear()
    context.feed([0] * prefix)
    context.forward([0] * width, width)
    return [context.told(i) for i in range(width)]


def test_tokens_of_all_widths_are_told_alike() -> None:
    context = watched(Layers())
    single = told(context, 64, 1)
    assert told(context, 64, 4)[0] == single[0]
    assert len(set(told(context, 64, 4))) == 4
    assert told(context, 60, 8)[4] == single[0]


def test_a_product_that_another_code_computes_is_told_though_the_row_is_the_same() -> None:
    context = watched(Layers(lambda name, width: int(name == "down" and width >= 4)))
    assert told(context, 64, 3)[0] == told(context, 64, 1)[0]
    assert told(context, 64, 4)[0] != told(context, 64, 1)[0]


def test_what_is_computed_for_each_cell_is_left_out() -> None:
    """Its length follows the cells in use, which a block fills sooner."""
    context = watched(Layers(lambda name, width: int(name == "scores" and width > 2)))
    assert told(context, 30, 4)[0] == told(context, 30, 1)[0]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [({"shows": False}, "do not show what they compute"), ({"disturbs": True}, "gives other rows when it is watched")],
)
def test_a_forward_that_cannot_be_looked_into_is_an_error(trouble: dict[str, bool], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        watched(Layers(**trouble))


def test_a_context_too_small_to_tell_cells_from_tokens_is_an_error() -> None:
    layers = Layers()
    layers.cells = 256
    with pytest.raises(EngineError, match="too small"):
        watched(layers)
