"""What every target engine must do. Speculation is exact because of what is checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from pilotfish.hooks.errors import ContextOverflow, PilotfishError
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Rows, TargetEngine, TargetSession
from pilotfish.hooks.types import SamplingParams

GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=0.8, seed=42, repeat_penalty=1.1)
N = 24  # tokens generated per test

Guess = Callable[[int, int], Sequence[int]]
"""(tokens generated so far, proposals wanted) -> proposals"""


class VerifierConformance:
    """Needs a fixture `engine`, loaded, with a lane of more than one width. `prompt` are ids that it knows."""

    @pytest.fixture
    def engine(self) -> TargetEngine:
        raise NotImplementedError("give the suite a fixture `engine`")

    @pytest.fixture
    def prompt(self) -> Sequence[int]:
        return [5, 6, 7, 8, 9, 5, 6, 7, 8, 10, 11]

    @pytest.fixture(params=[GREEDY, SEEDED], ids=["greedy", "seeded"])
    def sampling(self, request: pytest.FixtureRequest) -> SamplingParams:
        params: SamplingParams = request.param
        return params

    def test_it_is_an_engine(self, engine: TargetEngine) -> None:
        assert isinstance(engine, TargetEngine)
        assert list(engine.lane.widths) == sorted(set(engine.lane.widths))
        assert engine.lane.widths[0] >= 1
        assert all(0 <= token < engine.n_vocab for token in engine.eog)

    def test_prefill_comes_nearer_to_its_end_with_every_block(
        self, engine: TargetEngine, prompt: Sequence[int]
    ) -> None:
        session = engine.open(prompt, GREEDY, cache_prompt=False)
        try:
            assert session.cached == 0
            left = [session.prefill()]
            while left[-1]:
                left.append(session.prefill())
            assert left == sorted(set(left), reverse=True)
        finally:
            session.close()

    def test_it_starts_with_the_prompt_as_its_history(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        with ready(engine, prompt) as session:
            assert session.rollback() == History(prompt).ack()

    def test_a_second_run_gives_the_same_tokens(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        first = generate(engine, prompt, sampling)
        assert generate(engine, prompt, sampling) == first
        assert generate(engine, prompt, sampling, cache_prompt=False) == first

    def test_perfect_proposals_change_no_token_in_any_width(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        plain = generate(engine, prompt, sampling)
        for width in engine.lane.widths:
            assert generate(engine, prompt, sampling, perfect(plain), width) == plain

    def test_rejected_proposals_change_no_token(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        plain = generate(engine, prompt, sampling)

        def wrong_at_the_third(done: int, k: int) -> list[int]:
            ids = list(perfect(plain)(done, k))
            return [(token + 1) % engine.n_vocab if i == 2 else token for i, token in enumerate(ids)]

        def always_wrong(done: int, k: int) -> list[int]:
            return [(token + 1) % engine.n_vocab for token in perfect(plain)(done, k)]

        for guess in (wrong_at_the_third, always_wrong):
            assert generate(engine, prompt, sampling, guess, engine.lane.max_width) == plain

    def test_n_commits_of_one_equal_one_of_n(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        n = engine.lane.max_width
        plain = generate(engine, prompt, sampling)
        with ready(engine, prompt, sampling) as singly:
            for _ in range(n):
                ack = singly.commit([singly.verify([]).pick(0)])
            next_after_singles = singly.verify([]).pick(0)
        with ready(engine, prompt, sampling) as at_once:
            block = at_once.commit(accepted(at_once.verify(plain[: n - 1]), plain[: n - 1]))
            next_after_block = at_once.verify([]).pick(0)
        assert (ack.position, ack.digest) == (block.position, block.digest)
        assert (ack.round, block.round) == (n, 1)
        assert next_after_singles == next_after_block

    def test_rollback_forgets_the_forward(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        plain = generate(engine, prompt, GREEDY)
        with ready(engine, prompt) as session:
            for _ in range(3):
                session.verify([(token + 1) % engine.n_vocab for token in plain[: engine.lane.max_width - 1]])
                assert session.rollback() == History(prompt).ack()
            assert session.verify([]).pick(0) == plain[0]

    def test_there_is_one_row_more_than_proposals(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        with ready(engine, prompt) as session:
            for k in range(engine.lane.max_width):
                assert len(session.verify(prompt[:1] * k)) == k + 1
                session.rollback()

    def test_calls_out_of_turn_are_refused(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        with ready(engine, prompt) as session, pytest.raises(PilotfishError):
            session.commit([prompt[0]])
        with ready(engine, prompt) as session:
            session.verify([])
            with pytest.raises(PilotfishError):
                session.verify([])
        with ready(engine, prompt) as session:
            rows = session.verify(prompt[:1] * (engine.lane.max_width - 1))
            with pytest.raises(PilotfishError):
                rows.pick(1)

    def test_a_verify_before_the_prefill_is_done_is_refused(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        session = engine.open(prompt, GREEDY, cache_prompt=False)
        try:
            with pytest.raises(PilotfishError):
                session.verify([])
        finally:
            session.close()

    def test_a_reused_prefix_changes_no_token(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        longer = [*prompt, *prompt[:3]]
        fresh = generate(engine, longer, GREEDY, cache_prompt=False)
        generate(engine, prompt, GREEDY)
        with ready(engine, longer) as session:
            assert 0 <= session.cached < len(longer)
        generate(engine, prompt, GREEDY)
        assert generate(engine, longer, GREEDY) == fresh

    def test_a_prompt_as_long_as_the_context_is_refused_and_the_engine_lives(
        self, engine: TargetEngine, prompt: Sequence[int]
    ) -> None:
        with pytest.raises(ContextOverflow):
            engine.open([prompt[0]] * engine.n_ctx, GREEDY)
        assert generate(engine, prompt, GREEDY)

    def test_it_can_be_closed_in_mid_round_and_opened_again(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        plain = generate(engine, prompt, GREEDY)
        with ready(engine, prompt) as session:
            session.verify(prompt[: engine.lane.max_width - 1])
        assert generate(engine, prompt, GREEDY) == plain


@contextmanager
def ready(
    engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams = GREEDY, *, cache_prompt: bool = True
) -> Iterator[TargetSession]:
    """A session whose prompt is in the cache but for the pending token."""
    session = engine.open(prompt, sampling, cache_prompt=cache_prompt)
    try:
        while session.prefill():
            pass
        yield session
    finally:
        session.close()


def perfect(plain: Sequence[int]) -> Guess:
    """Proposals that are all right."""
    return lambda done, k: plain[done : done + k]


def generate(
    engine: TargetEngine,
    prompt: Sequence[int],
    sampling: SamplingParams,
    guess: Guess = lambda done, k: (),
    width: int = 1,
    *,
    cache_prompt: bool = True,
) -> list[int]:
    """N tokens, end tokens ignored; every acknowledgement is compared with a history kept here."""
    expected = History(prompt)
    with ready(engine, prompt, sampling, cache_prompt=cache_prompt) as session:
        tokens: list[int] = []
        while len(tokens) < N:
            proposals = list(guess(len(tokens), min(width, N - len(tokens)) - 1))
            picks = accepted(session.verify(proposals), proposals)
            assert session.commit(picks) == expected.commit(picks)
            tokens += picks
    return tokens


def accepted(rows: Rows, proposals: Sequence[int]) -> list[int]:
    """The picks up to the first that differs from its proposal."""
    picks: list[int] = []
    for i in range(len(rows)):
        picks.append(rows.pick(i))
        if i < len(proposals) and picks[i] != proposals[i]:
            break
    return picks
