"""Cells copied out of a real context and into another: the same bits, or a refusal that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, Lane, TargetPin

if TYPE_CHECKING:
    from pilotfish.plugins._cells.context import CellContext

pytestmark = pytest.mark.model

IDS = list(range(100, 124))  # blocks of them are in one class of widths, whichever engine computes


@pytest.fixture
def contexts(
    smollm2_path: Path, pin_of: Callable[[Path], TargetPin], lane: Lane, verifier: str
) -> Iterator[Callable[[int], CellContext]]:
    """`contexts(cells)`: one in the verifier's exact setting, of a model that all of them share."""
    options = EngineOptions(n_ctx=256, threads=1)
    if verifier == "llama":
        from pilotfish.plugins.verifiers._llama_dialect import LlamaDialect as Dialect

        dialect = Dialect()
    else:
        from pilotfish.plugins._ik.model import IkDialect

        dialect = IkDialect(options, "logger")
    model = dialect.open(pin_of(smollm2_path), lane.setting, options)
    made: list[CellContext] = []

    def context(cells: int) -> CellContext:
        made.append(model.context(lane.setting, EngineOptions(n_ctx=cells, threads=1), 4))
        return made[-1]

    yield context
    for one in made:
        one.close()
    model.close()


def row_after(context: CellContext, token: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    context.step(token)
    return context.row(0).copy()


def test_the_rows_after_it_are_the_same_bits_in_a_context_that_held_something_else(
    contexts: Callable[[int], CellContext],
) -> None:
    first, second = contexts(256), contexts(256)
    first.feed(IDS)
    state = first.state()
    assert state.size == first.state_size()
    row = row_after(first, 7)
    second.feed([5, 6] * 40)
    assert second.cut(60)
    second.restore(state)
    assert second.size == len(IDS)
    assert np.array_equal(row_after(second, 7), row)
    assert second.cut(15)
    second.feed(IDS[15:])
    assert np.array_equal(row_after(second, 7), row)
    first.restore(state)  # what it took itself, after it went on
    assert np.array_equal(row_after(first, 7), row)


def test_a_state_longer_than_the_context_is_refused_and_leaves_it_empty(
    contexts: Callable[[int], CellContext],
) -> None:
    long, short = contexts(512), contexts(256)
    long.feed(list(range(100, 400)))
    short.feed([5, 6])
    with pytest.raises(EngineError, match="300 saved cells do not fit 256"):
        short.restore(long.state())
    assert short.size == 0
    assert row_after(short, 7).size == short.n_vocab  # it lives
