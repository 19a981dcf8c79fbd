"""Conversations that take turns in one slot of a real model: no bit of a row depends on what was put aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, accepted, ready
from pilotfish.hooks.protocols import RemembersConversations
from pilotfish.hooks.types import SamplingParams
from tests.engines import GEMMA, EngineOf
from tests.long_forms import every_kind_once

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine
    from pilotfish.plugins._cells.session import CellSession

pytestmark = pytest.mark.model

PLENTY = 1 << 30
ENGINES = [("Q4_1", "llama"), ("Q4_K_M", "llama"), ("Q4_1", "ik"), (GEMMA, "ik")]
TITLED = {" on ".join(which): which for which in ENGINES}
WORDS = {"90 tokens": 60, "300 tokens": 200}  # past 256 attention may change its code
SUBJECTS = ("apples", "pears")


@pytest.fixture(params=ENGINES, ids=" on ".join)
def engine(request: pytest.FixtureRequest, engine_of: EngineOf) -> Iterator[CellEngine]:
    shared = engine_of(*request.param)
    forget(shared)
    yield shared
    shared.remember(lambda held: 0)


def forget(engine: CellEngine, room: int = PLENTY) -> None:
    """As if it had just been loaded, with `room` bytes for conversations."""
    engine.open([5, 6], GREEDY, cache_prompt=False).close()
    engine.remember(lambda held: room)


def chat(engine: CellEngine, subject: str, words: int = 40) -> list[int]:
    facts = " ".join(f"Of {subject} number {i} weighs {100 + i} grams." for i in range(words // 8))
    return engine.tokenizer.encode(f"Facts. {facts} The heaviest of the {subject}")


def row_after(session: CellSession) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    session.verify([])
    row = session.slot.context.row(0).copy()
    session.rollback()
    return row


def answer(
    engine: CellEngine, prompt: Sequence[int], sampling: SamplingParams, n: int, draft: Sequence[int] = ()
) -> tuple[list[int], int]:
    """`n` tokens, proposing what `draft` says at each place; and how many of the prompt's were not fed."""
    tokens: list[int] = []
    with ready(engine, prompt, sampling) as session:
        while len(tokens) < n:
            width = min(engine.lane.max_width, n - len(tokens))
            proposals = list(draft[len(tokens) : len(tokens) + width - 1])
            picks = accepted(session.verify(proposals), proposals)
            session.commit(picks)
            tokens += picks
    return tokens, session.cached


@pytest.mark.parametrize(
    ("engine", "words"),
    every_kind_once(TITLED, WORDS, others=pytest.mark.long),
    indirect=["engine"],
)
def test_a_conversation_that_comes_back_gives_the_rows_it_would_have_given(engine: CellEngine, words: int) -> None:
    first = chat(engine, "apples", words)
    tokens, _ = answer(engine, first, SEEDED, 9)
    follow_up = [*first, *tokens, *engine.tokenizer.encode(" And the lightest?", add_special=False)]
    with ready(engine, follow_up) as session:
        kept, row = session.cached, row_after(session)
    forget(engine)
    answer(engine, first, SEEDED, 9)
    answer(engine, chat(engine, "pears", words), SEEDED, 9)
    with ready(engine, follow_up) as session:
        assert session.cached == kept
        assert np.array_equal(row_after(session), row)
    assert engine.remembered.hits == (kept > 8)
    with ready(engine, follow_up, cache_prompt=False) as session:
        assert np.array_equal(row_after(session), row)
    if engine.exact_cache:
        assert kept >= len(first) + 8


@pytest.mark.parametrize(
    ("engine", "room"),
    every_kind_once(TITLED, {"all": PLENTY, "little": 3 << 19}, others=pytest.mark.long),
    indirect=["engine"],
)
def test_chats_in_turns_with_and_without_drafts_say_the_same_whatever_is_remembered(
    engine: CellEngine, room: int
) -> None:
    def turns(drafts: dict[str, list[int]], *, remember: int) -> dict[str, list[int]]:
        forget(engine, remember)
        said: dict[str, list[int]] = {subject: [] for subject in SUBJECTS}
        prompts = {subject: chat(engine, subject) for subject in SUBJECTS}
        for _ in range(2):
            for subject in SUBJECTS:
                draft = drafts.get(subject, [])[len(said[subject]) :]
                tokens, _ = answer(engine, prompts[subject], SEEDED, 10, draft)
                said[subject] += tokens
                prompts[subject] += [*tokens, *engine.tokenizer.encode(" Go on:", add_special=False)]
        return said

    plain = turns({}, remember=0)
    wrong = {subject: [token if i % 3 else 9 for i, token in enumerate(ids)] for subject, ids in plain.items()}
    assert turns(plain, remember=room) == plain
    assert turns(wrong, remember=room) == plain


def test_what_is_held_is_said_and_stays_within_the_room(engine: CellEngine) -> None:
    assert isinstance(engine, RemembersConversations)
    engine.remember(lambda held: 3 << 20)
    for i in range(6):
        answer(engine, chat(engine, f"thing {i}"), GREEDY, 2)
        assert engine.remembered.bytes <= engine.remembered.room == 3 << 20
    assert engine.remembered.entries >= 1
    assert engine.remembered.forgotten >= 1
