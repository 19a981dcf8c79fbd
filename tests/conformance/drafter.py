"""What every drafter must do, whatever it drafts with."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Drafter, DraftSession
from pilotfish.hooks.types import Proposal, TargetPin
from tests.fakes import fake_pin


class DrafterConformance:
    """Needs a fixture `drafter`. Override `target`, `prompt` or `deterministic` where they do not fit."""

    deterministic = True  # the same history always gives the same proposal

    @pytest.fixture
    def drafter(self) -> Drafter:
        raise NotImplementedError("give the suite a fixture `drafter`")

    @pytest.fixture
    def target(self) -> TargetPin:
        return fake_pin()

    @pytest.fixture
    def prompt(self) -> Sequence[int]:
        return [5, 6, 7, 8, 9, 5, 6, 7]

    def test_it_is_a_drafter(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        assert isinstance(drafter, Drafter)
        assert isinstance(drafter.name, str)
        assert drafter.name
        assert isinstance(drafter.inline, bool)
        with session_of(drafter, target, prompt) as session:
            assert isinstance(session, DraftSession)

    def test_it_starts_with_the_prompt_as_its_history(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        for start in (prompt, prompt[:1]):
            with session_of(drafter, target, start) as session:
                assert session.rollback() == History(start).ack()

    @pytest.mark.parametrize("k", [0, 1, 2, 7, 15])
    def test_a_proposal_has_at_most_k_ids_of_the_vocabulary(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int], k: int
    ) -> None:
        with session_of(drafter, target, prompt) as session:
            check_proposal(session.propose(k), k, target)

    def test_proposing_changes_no_history(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        with session_of(drafter, target, prompt) as session:
            first = session.propose(4)
            assert session.rollback() == History(prompt).ack()
            second = session.propose(4)
            assert session.rollback() == History(prompt).ack()
        if self.deterministic:
            assert first == second

    def test_it_takes_what_was_committed_and_not_what_it_proposed(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        expected = History(prompt)
        with session_of(drafter, target, prompt) as session:
            for cut in range(5):
                proposed = list(session.propose(4).tokens)[:cut]
                committed = [*proposed, (prompt[-1] + cut) % target.tokenizer.n_vocab]
                assert session.commit(committed) == expected.commit(committed)

    def test_it_takes_commits_without_having_proposed(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        expected = History(prompt)
        with session_of(drafter, target, prompt) as session:
            for token in prompt:
                assert session.commit([token]) == expected.commit([token])
            check_proposal(session.propose(4), 4, target)

    def test_n_commits_of_one_equal_one_of_n(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        tokens = [prompt[i % len(prompt)] for i in range(12)]
        with session_of(drafter, target, prompt) as singly:
            for token in tokens:
                ack = singly.commit([token])
            one_by_one = singly.propose(4)
        with session_of(drafter, target, prompt) as at_once:
            block = at_once.commit(tokens)
            together = at_once.propose(4)
        assert (ack.position, ack.digest) == (block.position, block.digest)
        assert (ack.round, block.round) == (12, 1)
        if self.deterministic:
            assert one_by_one == together

    @pytest.mark.parametrize("seed", range(3))
    def test_it_keeps_its_history_through_a_long_session(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int], seed: int
    ) -> None:
        rng = random.Random(seed)
        expected = History(prompt)
        with session_of(drafter, target, prompt) as session:
            for _ in range(100):
                if rng.random() < 0.7:
                    k = rng.randint(0, 15)
                    proposal = session.propose(k)
                    check_proposal(proposal, k, target)
                    if rng.random() < 0.2:
                        assert session.rollback() == expected.ack()
                        continue
                    accepted = list(proposal.tokens)[: rng.randint(0, k)]
                else:
                    accepted = []
                tokens = [*accepted, rng.choice(prompt)]
                assert session.commit(tokens) == expected.commit(tokens)

    def test_sessions_do_not_share_a_history(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        with session_of(drafter, target, prompt) as first:
            alone = first.propose(4)
            first.rollback()
        # Sessions follow one another; a drafter of one slot need not hold two at a time.
        with session_of(drafter, target, list(reversed(prompt))) as other:
            other.commit([prompt[0]])
        with session_of(drafter, target, prompt) as again:
            assert again.rollback() == History(prompt).ack()
            if self.deterministic:
                assert again.propose(4) == alone

    def test_it_can_be_closed_with_a_proposal_outstanding_and_opened_again(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        session = drafter.open(target, prompt)
        session.propose(4)
        session.close()
        with session_of(drafter, target, prompt) as again:
            assert again.commit([prompt[0]]) == History(prompt).commit([prompt[0]])


@contextmanager
def session_of(drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> Iterator[DraftSession]:
    """A session that is closed at the end, once."""
    session = drafter.open(target, prompt)
    try:
        yield session
    finally:
        session.close()


def check_proposal(proposal: Proposal, k: int, target: TargetPin) -> None:
    """At most k ids in the vocabulary, with confidences that are probabilities."""
    assert isinstance(proposal, Proposal)
    assert len(proposal.tokens) <= k
    assert all(type(token) is int for token in proposal.tokens)
    assert all(0 <= token < target.tokenizer.n_vocab for token in proposal.tokens)
    assert len(proposal.confidence) <= len(proposal.tokens)
    assert all(0 <= sure <= 1 for sure in proposal.confidence)
