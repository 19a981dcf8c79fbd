"""The session's protocol on the real engine: states, cuts, limits, and what a rollback takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, accepted, ready
from pilotfish.hooks.errors import ContextOverflow, EngineError, ProtocolViolation, RequestError
from pilotfish.hooks.types import Lane, SamplingParams

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model


@pytest.fixture
def small(
    load_engine: Callable[..., CellEngine], smollm2_path: Path, lane: Lane, verifier: str
) -> Iterator[CellEngine]:
    """256 cells, prompt blocks of 32 tokens, and a lane that is given, not found."""
    loaded = load_engine(smollm2_path, lane, n_ctx=256, batch_size=32, verifier=verifier)
    yield loaded
    loaded.close()


def test_four_proposed_one_accepted_cuts_exactly_the_three_rejected_cells_and_the_padding(engine: CellEngine) -> None:
    prompt = engine.tokenizer.encode("One, two, three, four, five,")
    with ready(engine, prompt) as session:
        first = session.verify([]).pick(0)
        session.rollback()
        proposals = [first, 9, 9, 9]
        rows = session.verify(proposals)
        assert session.slot.context.size == len(prompt) - 1 + 6  # pending, 4 proposals, 1 cell of padding
        picks = accepted(rows, proposals)
        assert len(picks) == 2
        session.commit(picks)
        assert session.slot.context.size == len(prompt) + 1
        assert list(session.slot.tokens) == [*prompt, first]
        assert session.history.tokens[-1] == picks[1]


def test_an_empty_proposal_is_a_plain_step(engine: CellEngine) -> None:
    prompt = engine.tokenizer.encode("One, two, three,")
    with ready(engine, prompt) as session:
        for step in range(1, 4):
            session.commit([session.verify([]).pick(0)])
            assert session.slot.context.size == len(prompt) - 1 + step


def test_ids_outside_the_vocabulary_never_reach_the_engine(engine: CellEngine) -> None:
    prompt = engine.tokenizer.encode("Hello")
    with ready(engine, [*prompt, 5]) as session:
        for wrong in (-1, engine.n_vocab, 2**40):
            with pytest.raises(ProtocolViolation, match=str(wrong)):
                session.verify([12, wrong])
        assert session.slot.context.size == len(prompt)
        assert session.verify([12]).pick(0) in range(engine.n_vocab)
    for wrong in (-1, engine.n_vocab, 2**40):
        with pytest.raises(RequestError, match="invalid tokens"):
            engine.open([5, wrong], GREEDY)
    with pytest.raises(RequestError, match="empty"):
        engine.open([], GREEDY)


def test_more_proposals_than_the_lane_is_wide_are_refused(engine: CellEngine) -> None:
    with ready(engine, [5, 6]) as session, pytest.raises(ProtocolViolation, match="lane"):
        session.verify([7] * engine.lane.max_width)


def test_a_commit_must_name_the_picks(engine: CellEngine) -> None:
    with ready(engine, [5, 6]) as session:
        rows = session.verify([])
        with pytest.raises(ProtocolViolation, match="commit"):
            session.commit([5])
        token = rows.pick(0)
        with pytest.raises(ProtocolViolation, match="commit"):
            session.commit([token, token])
        assert session.commit([token]).position == 3


def test_rows_of_an_earlier_forward_are_dead(engine: CellEngine) -> None:
    with ready(engine, [5, 6]) as session:
        rows = session.verify([])
        token = rows.pick(0)
        session.commit([token])
        assert rows.logprobs(0, token, 1).id == token  # the row itself lives until the next forward
        with pytest.raises(ProtocolViolation):
            rows.pick(0)
        session.verify([])
        with pytest.raises(ProtocolViolation):
            rows.logprobs(0, token, 1)


def test_only_one_session_at_a_time(engine: CellEngine) -> None:
    with ready(engine, [5, 6]), pytest.raises(ProtocolViolation, match="open in every slot"):
        engine.open([5, 6], GREEDY)


@pytest.mark.parametrize(
    "sampling",
    [SEEDED, SamplingParams(temperature=0, repeat_penalty=1.3), SamplingParams(seed=3, grammar="root ::= [a-z ]+")],
    ids=["seeded", "penalties", "grammar"],
)
def test_a_rollback_takes_the_draws_back_too(engine: CellEngine, sampling: SamplingParams) -> None:
    prompt = engine.tokenizer.encode("The quick brown fox")

    def tokens(rollbacks: int) -> list[int]:
        with ready(engine, prompt, sampling) as session:
            for _ in range(8):
                for _ in range(rollbacks):
                    rows = session.verify([9, 9])
                    rows.pick(0)
                    session.rollback()
                session.commit([session.verify([]).pick(0)])
            return list(session.history.tokens)

    assert tokens(rollbacks=2) == tokens(rollbacks=0)


def test_the_prompt_is_fed_in_blocks_with_fixed_boundaries(small: CellEngine) -> None:
    prompt = list(range(1000, 1100))
    session = small.open(prompt, GREEDY)
    assert [session.prefill() for _ in range(4)] == [67, 35, 3, 0]
    session.close()
    session = small.open([*prompt[:70], 7, 8, 9], GREEDY)
    assert session.cached == 64  # two whole blocks: the lane was given, so nothing is known about cells
    assert session.prefill() == 0
    session.close()


def test_a_prefill_that_was_stopped_is_taken_up_by_the_next_request(small: CellEngine) -> None:
    prompt = list(range(1000, 1100))
    session = small.open(prompt, GREEDY)
    session.prefill()
    session.close()
    with ready(small, prompt) as session:
        assert session.cached == 32


def test_the_context_limit(small: CellEngine) -> None:
    assert small.n_ctx == 256
    with pytest.raises(ContextOverflow) as overflow:
        small.open([5] * 256, GREEDY)
    assert (overflow.value.n_prompt_tokens, overflow.value.n_ctx) == (256, 256)
    with ready(small, [5] * 248) as session:
        with pytest.raises(EngineError, match="9 cells left"):
            session.verify([6] * 9)
        rows = session.verify([6] * 8)  # nine tokens need twelve cells in this lane; nine are left
        assert len(rows) == 8
        session.rollback()
        while len(session.history) < small.n_ctx:
            session.commit([session.verify([]).pick(0)])
    assert accepted_after_the_limit(small)


def accepted_after_the_limit(engine: CellEngine) -> list[int]:
    with ready(engine, [5, 6, 7]) as session:
        return accepted(session.verify([]), [])


def test_logprobs_are_the_softmax_of_the_raw_row(engine: CellEngine) -> None:
    sampling = SamplingParams(temperature=0.1, top_k=1, repeat_penalty=1.5, seed=1)
    with ready(engine, engine.tokenizer.encode("One, two, three, one, two,"), sampling) as session:
        rows = session.verify([9])
        token = rows.pick(0)
        row = session.slot.context.row(0).astype(np.float64)
        expected = row - np.log(np.exp(row - row.max()).sum()) - row.max()
        found = rows.logprobs(0, token, 5)
    assert found.logprob == pytest.approx(expected[token], abs=1e-4)
    assert found.piece == engine.tokenizer.piece(token)
    assert [entry.id for entry in found.top] == list(np.argsort(-expected, kind="stable")[:5])
    assert [entry.logprob for entry in found.top] == sorted((e.logprob for e in found.top), reverse=True)


def test_no_logprobs_asked_means_no_list(engine: CellEngine) -> None:
    with ready(engine, [5, 6]) as session:
        rows = session.verify([])
        assert rows.logprobs(0, 3, 0).top == ()
        assert len(rows.logprobs(0, 3, 10**9).top) == engine.n_vocab


def test_closing_twice_is_harmless_and_frees_the_slot(engine: CellEngine) -> None:
    session = engine.open([5, 6], GREEDY)
    session.close()
    session.close()
    with pytest.raises(ProtocolViolation, match="closed"):
        session.verify([])
    engine.open([5, 6], GREEDY).close()
