"""What every drafter must do, whatever it drafts with."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from pilotfish.daemon.lab.conformance.harness import Harness, Nonconformance
from pilotfish.hooks.declared import hidden_layers_of, placement_of
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.proposals import is_probability
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import Placement, Proposal

KS = (0, 1, 2, 7, 15)
SEEDS = (0, 1, 2)
INLINE_SECONDS = 0.001  # what Placement.INLINE promises


def is_a_drafter(harness: Harness) -> None:
    """It has a name, says where it computes, and opens sessions that propose, commit, roll back and close."""
    drafter = harness.drafter
    if not isinstance(drafter, Drafter):
        raise Nonconformance(
            f"{type(drafter).__name__} needs `name`, `placement` and `open`; see Drafter in the protocols"
        )
    if not isinstance(drafter.name, str) or not drafter.name:
        raise Nonconformance(f"its name is {drafter.name!r}; give it the name that it is registered by")
    try:
        placement_of(drafter)
        asks = hidden_layers_of(drafter)
    except ProtocolViolation as violation:
        raise Nonconformance(str(violation)) from violation
    with harness.session() as session:
        if asks and not session.takes_hidden:
            raise Nonconformance("it asks for activations, and its sessions have no `take_hidden`; see hooks/hidden.py")


def starts_with_the_prompt(harness: Harness) -> None:
    """A new session's history is the prompt it was opened on, be it a single token."""
    for prompt in (harness.prompt, harness.prompt[:1]):
        with harness.session(prompt) as session:
            session.rollback()


def proposals_are_clean(harness: Harness, ks: Sequence[int] = KS) -> None:
    """A proposal has at most k ids, all plain integers of the vocabulary, with confidences from 0 to 1."""
    for k in ks:
        with harness.session() as session:
            _check_proposal(session.propose(k), k, harness)


def proposing_changes_nothing(harness: Harness) -> None:
    """Proposing, however often, leaves the history as it was."""
    with harness.session() as session:
        first = session.propose(4)
        second = session.propose(4)  # a guard may ask again before anything is committed
        session.rollback()
        third = session.propose(4)
        session.rollback()
    if harness.deterministic:
        _same(first, second, "the second proposal for one history")
        _same(first, third, "the proposal after a rollback")


def rolls_back(harness: Harness) -> None:
    """After a rollback it goes on from the committed history, with or without a proposal before it."""
    with harness.session() as session:
        session.rollback()
        session.propose(15)
        session.rollback()
        session.rollback()
        session.commit([harness.prompt[0]])
        session.propose(4)
        session.rollback()
        session.commit([harness.prompt[-1]])


def takes_what_was_committed(harness: Harness) -> None:
    """What is committed becomes history, and not what was proposed."""
    with harness.session() as session:
        for cut in range(5):
            accepted = session.guess(4)[:cut]
            session.commit([*accepted, (harness.prompt[-1] + cut) % harness.n_vocab])


def commits_without_proposals(harness: Harness) -> None:
    """It takes commits that it was not asked about, and proposes from there."""
    with harness.session() as session:
        for token in harness.prompt:
            session.commit([token])
        _check_proposal(session.propose(4), 4, harness)


def one_commit_or_many(harness: Harness) -> None:
    """Twelve commits of one token and one commit of twelve give the same history."""
    tokens = list(islice(cycle(harness.prompt), 12))
    with harness.session() as singly:
        for token in tokens:
            singly.commit([token])
        one_by_one = singly.propose(4)
    with harness.session() as at_once:
        at_once.commit(tokens)
        together = at_once.propose(4)
    if harness.deterministic:
        _same(one_by_one, together, "the proposal after one commit of twelve")


def keeps_its_history(harness: Harness, seeds: Sequence[int] = SEEDS) -> None:
    """Through a long session of proposals, commits and rollbacks in any order its history stays the committed one."""
    for seed in seeds:
        rng = random.Random(seed)
        with harness.session() as session:
            for _ in range(harness.rounds):
                accepted: Sequence[int] = ()
                if rng.random() < 0.7:
                    k = rng.randint(0, 15)
                    proposal = _check_proposal(session.propose(k), k, harness)
                    if rng.random() < 0.2:
                        session.rollback()
                        continue
                    accepted = proposal.tokens[: rng.randint(0, k)]
                session.commit([*accepted, rng.choice(harness.prompt)])


def sessions_are_apart(harness: Harness) -> None:
    """A session knows nothing of the history of the one before it."""
    with harness.session() as first:
        alone = first.propose(4)
        first.rollback()
    # Sessions follow one another; a drafter of one slot need not hold two at a time.
    with harness.session(list(reversed(harness.prompt))) as other:
        other.commit([harness.prompt[0]])
    with harness.session() as again:
        again.rollback()
        proposal = again.propose(4)
    if harness.deterministic:
        _same(alone, proposal, "the proposal after another session")


def closes_and_reopens(harness: Harness) -> None:
    """It can be closed with a proposal outstanding, and opened again."""
    session = harness.open()
    session.propose(4)
    session.close()
    with harness.session() as again:
        again.commit([harness.prompt[0]])


def takes_a_long_history(harness: Harness) -> None:
    """A prompt longer than whatever it holds costs at most its proposals."""
    with harness.session(list(islice(cycle(harness.prompt), harness.long))) as session:
        for k in (4, 15):
            _check_proposal(session.propose(k), k, harness)
            session.commit([harness.prompt[0]])


def inline_is_quick(harness: Harness) -> None:
    """With `Placement.INLINE` a call returns within a millisecond however long the history is."""
    if harness.drafter.placement is not Placement.INLINE:
        return
    with harness.session(list(islice(cycle(harness.prompt), harness.long))) as session:
        times = []
        for _ in range(20):
            started = time.perf_counter()
            session.propose(15)
            times.append(time.perf_counter() - started)
            session.commit([harness.prompt[0]])
    # The fastest of many: a busy machine makes calls slower, never faster.
    if min(times) > INLINE_SECONDS:
        raise Nonconformance(
            f"after {harness.long:,} ids the fastest of {len(times)} proposals took {min(times) * 1000:.1f} ms; "
            "say Placement.THREAD, which gives it a deadline as well, or look at less of the history"
        )


@dataclass(frozen=True, slots=True)
class Check:
    """A check with the name it is reported under, and what it demands, in one sentence."""

    name: str
    demand: str
    run: Callable[[Harness], None]

    @classmethod
    def of(cls, run: Callable[[Harness], None]) -> Check:
        """The check that a function is: its name in words, and its docstring."""
        return cls(run.__name__.replace("_", " "), (run.__doc__ or "").strip(), run)


CHECKS = tuple(
    Check.of(run)
    for run in (
        is_a_drafter,
        starts_with_the_prompt,
        proposals_are_clean,
        proposing_changes_nothing,
        rolls_back,
        takes_what_was_committed,
        commits_without_proposals,
        one_commit_or_many,
        keeps_its_history,
        sessions_are_apart,
        closes_and_reopens,
        takes_a_long_history,
        inline_is_quick,
    )
)


def _check_proposal(proposal: object, k: int, harness: Harness) -> Proposal:
    if not isinstance(proposal, Proposal):
        raise Nonconformance(f"propose({k}) returned a {type(proposal).__name__}; return a Proposal, or EMPTY")
    tokens, confidence = _tuple(proposal.tokens, f"propose({k}).tokens"), _tuple(proposal.confidence, "its confidence")
    _check_tokens(tokens, k, harness)
    if len(confidence) > len(tokens):
        raise Nonconformance(
            f"propose({k}) gave {len(confidence)} confidences for {len(tokens)} tokens; give at most one for each"
        )
    for sure in confidence:
        if not is_probability(sure):
            raise Nonconformance(f"propose({k}) gave a confidence of {sure!r}; it is a probability, from 0 to 1")
    return proposal


def _tuple(value: object, what: str) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise Nonconformance(f"{what} is a {type(value).__name__}; make it a tuple")
    return value


def _check_tokens(tokens: tuple[object, ...], k: int, harness: Harness) -> None:
    if len(tokens) > k:
        raise Nonconformance(f"propose({k}) gave {len(tokens)} tokens; give at most k, for instance tokens[:k]")
    for token in tokens:
        if type(token) is not int:
            raise Nonconformance(f"propose({k}) gave {token!r}, a {type(token).__name__}; make every id an int")
        if not 0 <= token < harness.n_vocab:
            raise Nonconformance(
                f"propose({k}) gave the id {token}, which is outside the vocabulary of {harness.n_vocab} ids; end the "
                "proposal before it"
            )


def _same(first: object, second: object, which: str) -> None:
    if first != second:
        raise Nonconformance(
            f"{which} was {second}, the first {first}; propose from the committed history alone, or do not claim to "
            "be deterministic"
        )
