"""What every target engine must do. Speculation is exact because of what is checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pilotfish.daemon.lab.conformance.harness import Nonconformance
from pilotfish.hooks.errors import ContextOverflow, PilotfishError
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Rows, ShiftsContext, TargetEngine, TargetSession
from pilotfish.hooks.types import SamplingParams

GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=0.8, seed=42, repeat_penalty=1.1)
PROMPT = (5, 6, 7, 8, 9, 5, 6, 7, 8, 10, 11)
N = 24  # tokens generated per check

Guess = Callable[[int, int], Sequence[int]]
"""(tokens generated so far, proposals wanted) -> proposals"""


@dataclass(frozen=True, slots=True)
class EngineHarness:
    """A loaded engine, whose lane should have more than one width. `prompt` are ids that it knows."""

    engine: TargetEngine
    prompt: Sequence[int] = PROMPT
    samplings: Sequence[SamplingParams] = (GREEDY, SEEDED)

    @property
    def max_width(self) -> int:
        return self.engine.lane.max_width

    def plain(self, sampling: SamplingParams) -> list[int]:
        """What it generates without a proposal."""
        return generate(self.engine, self.prompt, sampling)

    def other(self, token: int) -> int:
        """An id that is not `token`."""
        return (token + 1) % self.engine.n_vocab


def is_an_engine(harness: EngineHarness) -> None:
    """It has everything that a TargetEngine has; the widths of its lane rise, its end tokens are ids."""
    engine = harness.engine
    demand(isinstance(engine, TargetEngine), f"{type(engine).__name__} is no TargetEngine; see it in the protocols")
    widths = list(engine.lane.widths)
    demand(widths == sorted(set(widths)) and widths[0] >= 1, f"its widths are {widths}; let them rise from 1 or more")
    outside = [token for token in engine.eog if not 0 <= token < engine.n_vocab]
    demand(not outside, f"its end tokens {outside} are outside the vocabulary of {engine.n_vocab} ids")


def prefills_in_blocks(harness: EngineHarness) -> None:
    """Each `prefill` feeds a block and says how much of the prompt is left, down to 0."""
    session = harness.engine.open(harness.prompt, GREEDY, cache_prompt=False)
    try:
        demand(session.cached == 0, f"{session.cached} tokens came from a cache that was not to be used")
        left = [session.prefill()]
        while left[-1]:
            left.append(session.prefill())
            demand(left[-1] < left[-2], f"prefill left {left[-2]} tokens and then {left[-1]}; feed at least one each")
    finally:
        session.close()


def starts_with_the_prompt(harness: EngineHarness) -> None:
    """A new session's history is the prompt."""
    with ready(harness.engine, harness.prompt) as session:
        same(session.rollback(), History(harness.prompt).ack(), "the history of a new session")


def repeats_itself(harness: EngineHarness) -> None:
    """The same request gives the same tokens again, with and without what an earlier one left in the cache."""
    for sampling in harness.samplings:
        first = harness.plain(sampling)
        same(harness.plain(sampling), first, "the second answer")
        fresh = generate(harness.engine, harness.prompt, sampling, cache_prompt=False)
        same(fresh, first, "the answer without a reused prompt")


def perfect_proposals_change_nothing(harness: EngineHarness) -> None:
    """Proposals that are all right change no token, in any width of the lane."""
    for sampling in harness.samplings:
        plain = harness.plain(sampling)
        for width in harness.engine.lane.widths:
            drafted = generate(harness.engine, harness.prompt, sampling, perfect(plain), width)
            same(drafted, plain, f"the answer in forwards of {width} tokens")


def rejected_proposals_change_nothing(harness: EngineHarness) -> None:
    """Proposals that are wrong, at the third token or everywhere, change no token."""
    for sampling in harness.samplings:
        plain = harness.plain(sampling)
        right = perfect(plain)

        def wrong_at_the_third(done: int, k: int, right: Guess = right) -> list[int]:
            return [harness.other(token) if i == 2 else token for i, token in enumerate(right(done, k))]

        def always_wrong(done: int, k: int, right: Guess = right) -> list[int]:
            return [harness.other(token) for token in right(done, k)]

        for guess in (wrong_at_the_third, always_wrong):
            drafted = generate(harness.engine, harness.prompt, sampling, guess, harness.max_width)
            same(drafted, plain, f"the answer with proposals that are {guess.__name__.replace('_', ' ')}")


def one_commit_or_many(harness: EngineHarness) -> None:
    """Commits of one token and one commit of all of them lead to the same history and the same next token."""
    engine, prompt, n = harness.engine, harness.prompt, min(harness.max_width, N)
    for sampling in harness.samplings:
        plain = harness.plain(sampling)
        with ready(engine, prompt, sampling) as singly:
            for _ in range(n):
                ack = singly.commit([singly.verify([]).pick(0)])
            next_after_singles = singly.verify([]).pick(0)
        with ready(engine, prompt, sampling) as at_once:
            block = at_once.commit(accepted(at_once.verify(plain[: n - 1]), plain[: n - 1]))
            next_after_block = at_once.verify([]).pick(0)
        same((block.position, block.digest), (ack.position, ack.digest), "the history after one commit")
        same((ack.round, block.round), (n, 1), "the number of rounds")
        same(next_after_block, next_after_singles, "the token after one commit")


def rolls_back(harness: EngineHarness) -> None:
    """A rollback forgets the forward: the history and the next token are as if it had never been."""
    plain = harness.plain(GREEDY)
    with ready(harness.engine, harness.prompt) as session:
        for _ in range(3):
            session.verify([harness.other(token) for token in plain[: harness.max_width - 1]])
            same(session.rollback(), History(harness.prompt).ack(), "the history after a rollback")
        same(session.verify([]).pick(0), plain[0], "the token after a rollback")


def has_a_row_more_than_proposals(harness: EngineHarness) -> None:
    """A forward of k proposals gives k + 1 rows."""
    with ready(harness.engine, harness.prompt) as session:
        for k in range(harness.max_width):
            same(len(session.verify([harness.prompt[0]] * k)), k + 1, f"the number of rows for {k} proposals")
            session.rollback()


def refuses_calls_out_of_turn(harness: EngineHarness) -> None:
    """A verify before the prompt is fed, a commit without one, a second one, and a row too far raise PilotfishError."""
    engine, prompt = harness.engine, harness.prompt
    session = engine.open(prompt, GREEDY, cache_prompt=False)
    try:
        with refused("verify before the prompt was fed"):
            session.verify([])
    finally:
        session.close()
    with ready(engine, prompt) as session, refused("commit without verify"):
        session.commit([prompt[0]])
    with ready(engine, prompt) as session:
        session.verify([])
        with refused("a second verify before the commit"):
            session.verify([])
    with ready(engine, prompt) as session:
        rows = session.verify([prompt[0]] * (harness.max_width - 1))
        with refused("picking row 1 before row 0"):
            rows.pick(1)


def reuses_a_prefix(harness: EngineHarness) -> None:
    """What an earlier request left in the cache changes no token of a later one."""
    engine, prompt = harness.engine, harness.prompt
    longer = [*prompt, *prompt[:3]]
    fresh = generate(engine, longer, GREEDY, cache_prompt=False)
    generate(engine, prompt, GREEDY)
    with ready(engine, longer) as session:
        cached = session.cached
    demand(0 <= cached < len(longer), f"{cached} of {len(longer)} tokens came from the cache; the last never may")
    generate(engine, prompt, GREEDY)
    same(generate(engine, longer, GREEDY), fresh, "the answer after a shorter prompt")


def refuses_a_full_context(harness: EngineHarness) -> None:
    """A prompt as long as the context raises ContextOverflow, and the engine lives on."""
    try:
        harness.engine.open([harness.prompt[0]] * harness.engine.n_ctx, GREEDY).close()
    except ContextOverflow:
        harness.plain(GREEDY)
        return
    raise Nonconformance(f"a prompt of {harness.engine.n_ctx} tokens, its whole context, was taken")


def closes_in_mid_round(harness: EngineHarness) -> None:
    """A session can be closed with a forward outstanding, and the next one knows nothing of it."""
    plain = harness.plain(GREEDY)
    with ready(harness.engine, harness.prompt) as session:
        session.verify(harness.prompt[: harness.max_width - 1])
    same(harness.plain(GREEDY), plain, "the answer after a session that was closed in mid-round")


def forgets_the_same_with_proposals(harness: EngineHarness) -> None:
    """Where a session can shift: whatever was proposed before and after, the same tokens follow, on a whole history."""
    with ready(harness.engine, harness.prompt) as session:
        if not (isinstance(session, ShiftsContext) and session.can_shift):
            return
    plain = _across_a_shift(harness, lambda done, k: (), 1)
    for width in harness.engine.lane.widths:
        drafted = _across_a_shift(harness, perfect(plain), width)
        same(drafted, plain, f"the answer across a shift in forwards of {width} tokens")


def _across_a_shift(harness: EngineHarness, guess: Guess, width: int) -> list[int]:
    """N tokens, a shift, and N more."""
    expected = History(harness.prompt)
    with ready(harness.engine, harness.prompt, cache_prompt=False) as session:
        tokens = go_on(session, expected, guess, width)
        assert isinstance(session, ShiftsContext)  # asked before
        session.shift(2, N)
        same(session.rollback(), expected.ack(), "the history after a shift")
        while session.prefill():
            pass
        return tokens + go_on(session, expected, lambda done, k: guess(N + done, k), width)


VERIFIER_CHECKS = (
    is_an_engine,
    prefills_in_blocks,
    starts_with_the_prompt,
    repeats_itself,
    perfect_proposals_change_nothing,
    rejected_proposals_change_nothing,
    one_commit_or_many,
    rolls_back,
    has_a_row_more_than_proposals,
    refuses_calls_out_of_turn,
    reuses_a_prefix,
    refuses_a_full_context,
    closes_in_mid_round,
    forgets_the_same_with_proposals,
)


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
    with ready(engine, prompt, sampling, cache_prompt=cache_prompt) as session:
        return go_on(session, History(prompt), guess, width)


def go_on(session: TargetSession, expected: History, guess: Guess, width: int) -> list[int]:
    """N tokens more of a session whose history is `expected`."""
    tokens: list[int] = []
    while len(tokens) < N:
        proposals = list(guess(len(tokens), min(width, N - len(tokens)) - 1))
        picks = accepted(session.verify(proposals), proposals)
        same(session.commit(picks), expected.commit(picks), f"what commit({picks}) acknowledged")
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


@contextmanager
def refused(what: str) -> Iterator[None]:
    """What is done in this context has to raise a PilotfishError."""
    try:
        yield
    except PilotfishError:
        return
    raise Nonconformance(f"{what} was let pass; raise ProtocolViolation")


def same(found: object, expected: object, what: str) -> None:
    """Raise Nonconformance unless the two are equal."""
    demand(found == expected, f"{what} is {found}; it must be {expected}")


def demand(holds: bool, otherwise: str) -> None:
    """Raise Nonconformance, saying `otherwise`, unless it holds."""
    if not holds:
        raise Nonconformance(otherwise)
