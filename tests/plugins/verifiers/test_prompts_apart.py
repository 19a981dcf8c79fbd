"""Prompts of a real model that are read with stock's cache types and decoded in an exact lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, accepted, ready
from pilotfish.hooks.protocols import ReadsPromptsFast
from pilotfish.hooks.types import EngineSetting, Lane, SamplingParams
from pilotfish.plugins._llama import prompts_apart
from pilotfish.plugins._llama.sequence_state import UnknownLayout, parse
from tests.engines import LoadEngine

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

PLENTY = 1 << 40
WIDTHS = (1, 2, 3, 4, 8, 16)
LANE = Lane("test", WIDTHS, EngineSetting("bf16", "f16"), exact_cache=True)
N = 20


@pytest.fixture(scope="module")
def loaded(load_engine: LoadEngine, quantized: Callable[[str], Path]) -> Iterator[CellEngine]:
    engine = load_engine(quantized("Q4_0"), LANE, n_ctx=2048, batch_size=128)
    yield engine
    engine.close()


@pytest.fixture
def engine(loaded: CellEngine) -> CellEngine:
    """One that reads prompts apart; what it held is forgotten."""
    loaded.read_prompts_fast(lambda: PLENTY)
    loaded.remember(lambda held: 0)
    loaded.open([5, 6], GREEDY, cache_prompt=False).close()
    return loaded


def prompt_of(engine: CellEngine, n: int, subject: str = "apples") -> list[int]:
    facts = " ".join(f"Of {subject} number {i} weighs {100 + i} grams." for i in range(n // 8))
    ids = engine.tokenizer.encode(f"Facts. {facts}")[: n - 6]
    return [*ids, *engine.tokenizer.encode(" Now list all of them:", add_special=False)]


def answer(
    engine: CellEngine,
    prompt: Sequence[int],
    sampling: SamplingParams,
    draft: Sequence[int] = (),
    *,
    cache_prompt: bool = False,
) -> list[int]:
    """N tokens, proposing what `draft` says at each place."""
    tokens: list[int] = []
    with ready(engine, prompt, sampling, cache_prompt=cache_prompt) as session:
        while len(tokens) < N:
            room = min(engine.lane.max_width, N - len(tokens)) - 1
            proposals = list(draft[len(tokens) : len(tokens) + room])
            picks = accepted(session.verify(proposals), proposals)
            session.commit(picks)
            tokens += picks
    return tokens


def row_after(engine: CellEngine, prompt: Sequence[int], *, cache_prompt: bool = False) -> np.ndarray:
    with ready(engine, prompt, cache_prompt=cache_prompt) as session:
        session.verify([])
        row = session.slot.context.row(0).copy()
        session.rollback()
    return row


def wrong_here_and_there(tokens: Sequence[int]) -> list[int]:
    return [9 if i % 4 == 2 else token for i, token in enumerate(tokens)]


@pytest.mark.parametrize(
    ("n", "sampling"), [(300, GREEDY), (700, SEEDED)], ids=["a short prompt, greedy", "a long one, seeded"]
)
def test_drafts_right_and_wrong_change_no_token(engine: CellEngine, n: int, sampling: SamplingParams) -> None:
    prompt = prompt_of(engine, n)
    plain = answer(engine, prompt, sampling)
    assert answer(engine, prompt, sampling, plain) == plain
    assert answer(engine, prompt, sampling, wrong_here_and_there(plain)) == plain
    assert engine.prompts_read == "with stock's cache types"


@pytest.mark.parametrize("n", [300, pytest.param(1100, marks=pytest.mark.long)])
def test_after_moved_cells_every_width_gives_the_rows_of_single_steps(engine: CellEngine, n: int) -> None:
    ids = [int(id) for id in np.random.default_rng(n).integers(0, engine.n_vocab, n + 48)]
    with ready(engine, ids[: n + 1], cache_prompt=False) as session:
        context = session.slot.context
        single = []
        for id in ids[n:]:
            context.step(id)
            single.append(context.row(0).copy())
        for width in WIDTHS[1:]:
            assert context.cut(n)
            for at in range(0, 48, width):
                context.forward(ids[n + at : n + at + width], width)
                for i in range(width):
                    assert np.array_equal(context.row(i), single[at + i])
        assert context.cut(n)


def test_it_is_the_same_cells_every_time_and_nearly_those_of_the_lane(engine: CellEngine) -> None:
    prompt = prompt_of(engine, 300)
    apart = row_after(engine, prompt)
    assert np.array_equal(row_after(engine, prompt), apart)
    engine.read_prompts_fast(lambda: 0)
    in_lane = row_after(engine, prompt)
    assert not np.array_equal(apart, in_lane)  # else this would have compared the lane with itself
    assert 0 <= divergence(in_lane, apart) < 0.05


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL, in nats."""
    p, q = (row.astype(np.float64) - np.logaddexp.reduce(row.astype(np.float64)) for row in (p, q))
    return float((np.exp(p) * (p - q)).sum())


def test_what_a_long_addition_continues_keeps_every_bit(engine: CellEngine) -> None:
    stem = prompt_of(engine, 400)
    answer(engine, stem, SEEDED)  # the lane decodes: cells that no prompt wrote
    kept = len(engine._slots[0].tokens)
    before = parse(engine._slots[0].context.state().data.copy())
    longer = [*engine._slots[0].tokens, *prompt_of(engine, 300, "pears")]
    with ready(engine, longer) as session:
        assert session.cached == kept
        after = parse(session.slot.context.state().data)
    assert after.cells == len(longer) - 1
    for side in (0, 1):
        for old, new in zip(before.sides[side], after.sides[side], strict=True):
            assert old.kind == new.kind
            assert np.array_equal(old.rows, new.rows[:kept])


def test_chats_in_turns_keep_their_ids_with_and_without_drafts(engine: CellEngine) -> None:
    def turns(drafts: dict[str, list[int]]) -> dict[str, list[int]]:
        engine.open([5, 6], GREEDY, cache_prompt=False).close()
        engine.remember(lambda held: PLENTY)
        said: dict[str, list[int]] = {"apples": [], "pears": []}
        prompts = {subject: prompt_of(engine, 300, subject) for subject in said}
        for _ in range(2):
            for subject, tokens in said.items():
                new = answer(
                    engine, prompts[subject], SEEDED, drafts.get(subject, [])[len(tokens) :], cache_prompt=True
                )
                tokens += new
                prompts[subject] += [*new, *engine.tokenizer.encode(" Go on:", add_special=False)]
        assert engine.remembered.hits == 2
        return said

    plain = turns({})
    assert turns({subject: wrong_here_and_there(tokens) for subject, tokens in plain.items()}) == plain


def test_where_memory_is_short_the_lane_reads_and_that_is_said(engine: CellEngine) -> None:
    assert isinstance(engine, ReadsPromptsFast)
    prompt = prompt_of(engine, 300)
    engine.read_prompts_fast(lambda: 1 << 20)
    short = row_after(engine, prompt)
    assert "in the lane: a second context for" in engine.prompts_read
    assert "and may take 0" in engine.prompts_read
    engine._slots[0].reader = None
    assert np.array_equal(row_after(engine, prompt), short)


def test_a_state_laid_out_in_another_way_leaves_prompts_to_the_lane(
    engine: CellEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(data: np.ndarray) -> None:
        raise UnknownLayout("another version")

    monkeypatch.setattr(prompts_apart, "parse", unknown)
    prompt = prompt_of(engine, 300)
    row = row_after(engine, prompt)
    assert engine.prompts_read == "in the lane: another version"
    engine._slots[0].reader = None
    assert np.array_equal(row_after(engine, prompt), row)


@pytest.mark.parametrize("which", [("Q4_K_M", "llama"), ("Q4_1", "ik")], ids=" on ".join)
def test_lanes_that_keep_cells_by_blocks_or_are_fast_themselves_read(
    which: tuple[str, str], load_engine: LoadEngine, quantized: Callable[[str], Path]
) -> None:
    weights, verifier = which
    engine = load_engine(quantized(weights), verifier=verifier)  # no shared one: what it keeps of prompts changes
    engine.read_prompts_fast(lambda: PLENTY)
    assert engine.prompts_read == "in the lane"
    engine.close()
