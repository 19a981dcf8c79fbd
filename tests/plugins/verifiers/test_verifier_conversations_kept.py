"""Conversations of a real model that outlive its process: the rows after them are those that were to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import SEEDED, ready
from pilotfish.hooks.protocols import KeepsConversations
from tests.engines import LoadEngine
from tests.plugins.verifiers.test_verifier_conversations import PLENTY, answer, chat, row_after

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

ENGINES = [("Q4_1", "llama", 1), ("Q4_K_M", "llama", 2), ("Q4_1", "ik", 1)]


@pytest.fixture(params=ENGINES, ids=lambda which: f"{which[0]} on {which[1]}, slots {which[2]}")
def load(
    request: pytest.FixtureRequest, load_engine: LoadEngine, quantized: Callable[[str], Path], tmp_path: Path
) -> Callable[..., CellEngine]:
    """The same model again and again, with the same folder."""
    weights, verifier, slots = request.param

    def loaded(*, n_ctx: int = 1024) -> CellEngine:
        engine = load_engine(quantized(weights), verifier=verifier, slots=slots, n_ctx=n_ctx)
        engine.remember(lambda held: PLENTY)
        engine.keep_conversations(tmp_path / "kept", PLENTY)
        return engine

    return loaded


def test_the_next_load_goes_on_where_this_one_ended(load: Callable[..., CellEngine]) -> None:
    engine = load()
    assert isinstance(engine, KeepsConversations)
    first = chat(engine, "apples", 160)
    tokens, _ = answer(engine, first, SEEDED, 9)
    follow_up = [*first, *tokens, *engine.tokenizer.encode(" And the lightest?", add_special=False)]
    with ready(engine, follow_up) as session:
        kept, row = session.cached, row_after(session)
    engine.close()

    engine = load()
    with ready(engine, follow_up) as session:
        assert session.cached > kept or session.cached == len(follow_up) - 1
        assert np.array_equal(row_after(session), row)
    assert engine.remembered.disk_hits == 1
    engine.close()

    engine = load(n_ctx=512)  # another setting's cells are not this one's
    with ready(engine, follow_up) as session:
        assert session.cached == 0
    engine.close()
