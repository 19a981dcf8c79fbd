"""Prompts read fast: no more of them than no slot holds, on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, accepted, ready
from tests.engines import VERIFIERS, LoadEngine

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

PLENTY = 1 << 40


@pytest.fixture(scope="module", params=VERIFIERS)
def engine(
    request: pytest.FixtureRequest, load_engine: LoadEngine, quantized: Callable[[str], Path]
) -> Iterator[CellEngine]:
    """Lanes of Q4_K_M keep cells by whole blocks on either engine."""
    loaded = load_engine(quantized("Q4_K_M"), verifier=request.param)
    assert not loaded.exact_cache
    loaded.read_prompts_fast(lambda: PLENTY)
    yield loaded
    loaded.close()


def turns(engine: CellEngine, drafts: Sequence[Sequence[int]] = ((), (), ())) -> tuple[list[list[int]], list[int]]:
    """Three turns of a chat that begins anew: what was said in each, and how many tokens each began with."""
    engine.open([5, 6], GREEDY, cache_prompt=False).close()
    prompt = engine.tokenizer.encode("Facts. " + " ".join(f"Apple {i} weighs {100 + i} grams." for i in range(20)))
    said: list[list[int]] = []
    kept: list[int] = []
    for draft in drafts:
        tokens: list[int] = []
        with ready(engine, prompt, SEEDED) as session:
            kept.append(session.cached)
            while len(tokens) < 20:
                width = min(engine.lane.max_width, 20 - len(tokens))
                proposals = list(draft[len(tokens) : len(tokens) + width - 1])
                picks = accepted(session.verify(proposals), proposals)
                session.commit(picks)
                tokens += picks
        said.append(tokens)
        prompt = [*prompt, *tokens, *engine.tokenizer.encode(" And then?", add_special=False)]
    return said, kept


def test_a_turn_reads_only_what_is_new_and_says_the_same_with_drafts_and_without(engine: CellEngine) -> None:
    plain, kept = turns(engine)
    assert kept[0] == 0
    new = len(engine.tokenizer.encode(" And then?", add_special=False))
    assert kept[2] == kept[1] + 20 + new  # all but the answer's last token, which was never forwarded
    wrong = [[token if i % 3 else 9 for i, token in enumerate(answer)] for answer in plain]
    assert turns(engine, plain) == (plain, kept)
    assert turns(engine, wrong) == (plain, kept)
