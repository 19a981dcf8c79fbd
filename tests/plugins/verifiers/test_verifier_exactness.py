"""Blocks, proposals and reused prefixes change no token of a real model, and no bit of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, Guess, accepted, perfect, ready
from pilotfish.hooks.protocols import Rows
from pilotfish.hooks.types import SamplingParams
from tests.engines import GEMMA, EngineOf
from tests.long_forms import every_kind_once

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine
    from pilotfish.plugins._cells.session import CellSession

pytestmark = pytest.mark.model

N = 32
CHAT = "<|im_start|>user\nWrite ten lines, each starting with Alpha.<|im_end|>\n<|im_start|>assistant\n"

GRAMMAR = SamplingParams(seed=7, grammar='root ::= "[" [0-9] ("," [0-9])* "]"')


# On two threads where libllama could divide a row's attention between them; ik_llama.cpp's threads spin through wide
# blocks whatever OpenMP is told, ten times as slow on shared cores.
ENGINES = [("Q4_1", "llama", 2), ("Q8_0", "llama", 1), ("Q4_K_M", "llama", 1), ("Q4_1", "ik", 1)]
ON_IK = [("Q4_K_M", "ik", 1), (GEMMA, "ik", 1)]  # other kernels, and a window


def title(which: tuple[str, str, int]) -> str:
    return " on ".join(which[:2])


SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED, "grammar": GRAMMAR}
OF_EACH_FORMAT = {title(which): which for which in ENGINES}
OF_EACH_KERNEL = {title(which): which for which in ENGINES + ON_IK}


@pytest.fixture(params=ENGINES, ids=title)
def any_engine(request: pytest.FixtureRequest, engine_of: EngineOf) -> CellEngine:
    return engine_of(*request.param)


def decode(
    engine: CellEngine,
    prompt: Sequence[int],
    sampling: SamplingParams,
    guess: Guess = lambda done, k: (),
    k: int = 0,
    *,
    n: int = N,
) -> tuple[list[int], list[int]]:
    """`n` tokens with at most `k` proposals a round, and how many were committed in each round."""
    tokens: list[int] = []
    rounds: list[int] = []
    with ready(engine, prompt, sampling) as session:
        while len(tokens) < n and not (tokens and tokens[-1] in engine.eog):
            proposals = list(guess(len(tokens), min(k, n - 1 - len(tokens))))
            picks = until_an_end(session.verify(proposals), proposals, engine.eog)
            session.commit(picks)
            tokens += picks
            rounds.append(len(picks))
    return tokens, rounds


def until_an_end(rows: Rows, proposals: Sequence[int], eog: frozenset[int]) -> list[int]:
    """The picks up to the first that differs from its proposal or ends the text."""
    picks: list[int] = []
    for i in range(len(rows)):
        picks.append(rows.pick(i))
        if picks[i] in eog or picks[i : i + 1] != list(proposals[i : i + 1]):
            break
    return picks


@pytest.mark.parametrize(
    ("any_engine", "sampling"),
    every_kind_once(OF_EACH_FORMAT, SAMPLINGS, others=pytest.mark.long),
    indirect=["any_engine"],
)
def test_at_most_0_to_4_proposals_a_round_give_equal_ids(any_engine: CellEngine, sampling: SamplingParams) -> None:
    prompt = any_engine.tokenizer.encode(CHAT)
    plain, _ = decode(any_engine, prompt, sampling)
    most = min(4, any_engine.lane.max_width - 1)
    for k in range(1, most + 1):
        assert decode(any_engine, prompt, sampling, perfect(plain), k)[0] == plain
    wrong = decode(any_engine, prompt, sampling, lambda done, k: [31000 + done + i for i in range(k)], most, n=12)[0]
    assert wrong == plain[:12]


@pytest.mark.parametrize(
    ("any_engine", "sampling"),
    every_kind_once(OF_EACH_KERNEL, {"seeded": SEEDED, "greedy": GREEDY}, others=pytest.mark.long),
    indirect=["any_engine"],
)
def test_drafts_of_any_length_that_are_partly_right_change_no_token(
    any_engine: CellEngine, sampling: SamplingParams
) -> None:
    """As an n-gram drafter's: right for a while, then not. The text crosses cell 256, where attention may change."""
    prompt = any_engine.tokenizer.encode("Alpha beta gamma delta. " * 48 + CHAT)[:240]
    plain, _ = decode(any_engine, prompt, sampling)
    random = np.random.default_rng(5)

    def partly_right(done: int, k: int) -> list[int]:
        length = int(random.integers(0, k + 1))
        right = int(random.integers(0, length + 1))
        wrong = random.integers(0, any_engine.n_vocab, length)
        return [*plain[done : done + right], *map(int, wrong)][:length]

    assert decode(any_engine, prompt, sampling, partly_right, any_engine.lane.max_width - 1)[0] == plain


def test_full_width_replay_accepts_everything(any_engine: CellEngine) -> None:
    prompt = any_engine.tokenizer.encode(CHAT)
    plain, _ = decode(any_engine, prompt, GREEDY)
    width = any_engine.lane.max_width
    replayed, rounds = decode(any_engine, prompt, GREEDY, perfect(plain), width - 1)
    assert replayed == plain
    assert set(rounds[:-1]) == {width}


def test_a_model_drafting_for_itself_is_never_rejected(engine: CellEngine, load_itself: CellEngine) -> None:
    prompt = engine.tokenizer.encode(CHAT)
    with ready(engine, prompt) as target, ready(load_itself, prompt) as drafter:
        for _ in range(6):
            draft = []
            for _ in range(7):
                rows = drafter.verify([])
                draft.append(rows.pick(0))
                drafter.commit(draft[-1:])
            picks = accepted(target.verify(draft), draft)
            assert picks[:7] == draft
            target.commit(picks)
            rows = drafter.verify([])
            assert rows.pick(0) == picks[7]
            drafter.commit([picks[7]])


@pytest.fixture
def load_itself(load_engine: Callable[..., CellEngine], smollm2_path: object, verifier: str) -> Iterator[CellEngine]:
    loaded = load_engine(smollm2_path, verifier=verifier)
    yield loaded
    loaded.close()


def row_after(session: CellSession) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    session.verify([])
    row = session.slot.context.row(0).copy()
    session.rollback()
    return row


def test_rows_after_n_commits_of_one_and_one_commit_of_n_are_the_same_bits(any_engine: CellEngine) -> None:
    prompt = any_engine.tokenizer.encode(CHAT)
    n = any_engine.lane.max_width
    plain, _ = decode(any_engine, prompt, GREEDY, n=n)
    with ready(any_engine, prompt) as session:
        for token in plain:
            rows = session.verify([])
            assert session.commit([rows.pick(0)]).position == len(session.history)
            assert session.history.tokens[-1] == token
        singly = row_after(session)
    with ready(any_engine, prompt) as session:
        session.commit(accepted(session.verify(plain[:-1]), plain[:-1]))
        at_once = row_after(session)
    with ready(any_engine, prompt) as session:  # and with a rejection and padding on the way
        session.commit(accepted(session.verify([plain[0], 9]), [plain[0], 9]))
        session.commit(accepted(session.verify(plain[2:-1][: n - 1]), plain[2:-1][: n - 1]))
        rejected = row_after(session)
    assert np.array_equal(singly, at_once)
    assert np.array_equal(singly, rejected)


@pytest.mark.parametrize(
    ("any_engine", "words"),  # less than a block of the prompt, and more than the longest
    every_kind_once(OF_EACH_FORMAT, {"520": 520, "20": 20}, others=pytest.mark.long),
    indirect=["any_engine"],
)
def test_a_prefix_from_an_earlier_request_changes_no_bit(any_engine: CellEngine, words: int) -> None:
    stem = any_engine.tokenizer.encode("Alpha beta gamma delta. " * (words // 5))
    prompt = [*stem, *any_engine.tokenizer.encode("Which word comes next?")]
    with ready(any_engine, prompt, cache_prompt=False) as session:
        fresh = row_after(session)
    decode(any_engine, [*stem, *any_engine.tokenizer.encode("Name a colour. ")], SEEDED, n=9)
    with ready(any_engine, prompt) as session:
        reused, cached = row_after(session), session.cached
    assert np.array_equal(fresh, reused)
    if any_engine.exact_cache:
        assert cached >= len(stem)


def test_a_conversation_keeps_its_own_answer_in_an_exact_cache(engine: CellEngine) -> None:
    prompt = engine.tokenizer.encode(CHAT)
    answer, _ = decode(engine, prompt, GREEDY)
    follow_up = [*prompt, *answer, *engine.tokenizer.encode("\nAnd now?")]
    with ready(engine, follow_up) as session:
        kept, row = session.cached, row_after(session)
    with ready(engine, follow_up, cache_prompt=False) as session:
        assert np.array_equal(row_after(session), row)
    if engine.exact_cache:
        assert kept >= len(prompt) + len(answer) - 1
    else:  # the new prompt would write its first block, which ends elsewhere, in one piece
        assert kept == 0


def test_the_same_request_twice_has_the_same_prompt_count_and_answer(any_engine: CellEngine) -> None:
    prompt = any_engine.tokenizer.encode(CHAT)
    any_engine.open(prompt, GREEDY, cache_prompt=False).close()
    counts, answers = [], []
    for _ in range(2):
        with ready(any_engine, prompt) as session:
            counts.append(session.cached)
        answers.append(decode(any_engine, prompt, GREEDY)[0])
    assert counts == [0, len(prompt) - 1]
    assert answers[0] == answers[1]


def test_every_round_commits_at_least_one_token_when_one_position_is_always_rejected(engine: CellEngine) -> None:
    prompt = engine.tokenizer.encode(CHAT)
    plain, _ = decode(engine, prompt, GREEDY)

    def wrong_at_20(done: int, k: int) -> list[int]:
        return [9 if done + i == 20 else token for i, token in enumerate(plain[done : done + k])]

    tokens, rounds = decode(engine, prompt, GREEDY, wrong_at_20, 7)
    assert tokens == plain
    assert min(rounds) >= 1
