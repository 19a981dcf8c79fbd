"""A real model whose windows are shorter than its context: Gemma 3, with windows of 512 in a ring of 768 cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.core.output_text import OutputText, incomplete_tail
from pilotfish.daemon.lab.conformance.verifier_checks import ready
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.types import EngineSetting, Lane
from tests.engines import GEMMA, EngineOf, LoadEngine
from tests.plugins.verifiers.courses import Course, committed, course, digest_of, ids

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

PLENTY = 1 << 40
FACES = "Zoë: \N{GRINNING FACE}\N{ZERO WIDTH JOINER}\N{FIRE} ok \U000f1234."  # some are pieced of bytes


@pytest.fixture(scope="module")
def gemma(load_engine: LoadEngine, quantized: Callable[[str], Path]) -> Iterator[CellEngine]:
    lane = Lane("test", (1, 2, 3), EngineSetting("bf16", "f16"))
    engine = load_engine(quantized(GEMMA), lane, n_ctx=1280, batch_size=128)
    engine.read_prompts_fast(lambda: 0)
    engine.remember(lambda held: PLENTY)
    yield engine
    engine.close()


def random_ids(n: int) -> list[int]:
    return [int(id) for id in np.random.default_rng(1).integers(5, 200_000, n)]


def test_it_is_decoded_as_plainly_over_its_rings_end_and_comes_back(gemma: CellEngine) -> None:
    prompt = random_ids(745)
    plain, _ = course(gemma, prompt, 40, cache_prompt=True)
    later = [*prompt, *ids(plain), 9, 10, 11]
    stayed = course(gemma, later, 10, cache_prompt=True)
    assert course(gemma, prompt, 40, ids(plain), seed=1)[0] == plain
    course(gemma, prompt[:40], 2, cache_prompt=True)
    assert course(gemma, later, 10, ids(stayed[0]), seed=3, cache_prompt=True) == stayed
    assert stayed[1] == len(prompt) + 39


def test_behind_its_windows_an_abort_leaves_nothing_and_the_retry_says_the_same(gemma: CellEngine) -> None:
    """The prompt crosses a window twice, and a whole one is left between what was fed and what is seen."""
    prompt = random_ids(1130)
    fresh, _ = course(gemma, prompt, 8)
    right = ids(fresh)
    with ready(gemma, prompt, cache_prompt=False) as session:
        before, cells = session.rollback(), gemma._slots[0].context.size
        rows = session.verify(right[:2])
        first = [(rows.pick(0), digest_of(session, 0)), (rows.pick(1), digest_of(session, 1))]
        with pytest.raises(ProtocolViolation, match="picks"):
            session.commit([right[0], right[1] + 1])
        assert session.rollback() == before
        assert gemma._slots[0].context.size == cells
        done: Course = []
        for proposals in (right[:2], [7, 7], []):
            done += committed(session, proposals or right[len(done) : len(done) + 2])
        assert done[:2] == first
        assert done == fresh[: len(done)]
        assert len(done) >= 7


@pytest.mark.parametrize("weights", ["Q4_1", GEMMA])
def test_half_a_character_of_a_real_vocabulary_is_told_from_a_whole_one(
    engine_of: EngineOf, gemma: CellEngine, weights: str
) -> None:
    tokenizer = gemma.tokenizer if weights == GEMMA else engine_of(weights).tokenizer
    tokens = tokenizer.encode(FACES, add_special=False)
    pieces = [tokenizer.piece(token) for token in tokens]
    assert b"".join(pieces).decode().strip() == FACES
    text, shown, halves = OutputText(), "", 0
    for i, piece in enumerate(pieces):
        shown += text.push(piece)
        so_far = b"".join(pieces[: i + 1])
        if incomplete_tail(so_far):
            halves += 1
            assert so_far.startswith(shown.encode())
        else:
            assert shown == so_far.decode()
    assert halves > 0
