"""What every drafter must do, whatever it drafts with: the checks of `pilotfish conformance` as pytest sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pilotfish.daemon.lab.conformance import drafter_checks as checks
from pilotfish.daemon.lab.conformance.harness import Harness, Nonconformance
from pilotfish.daemon.lab.conformance.suites.own_fixtures import needs
from pilotfish.daemon.lab.fakes import fake_pin
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import TargetPin


class DrafterConformance:
    """Needs a fixture `drafter`. Override `target`, `prompt` or the figures below where they do not fit."""

    deterministic = True  # the same history always gives the same proposal
    rounds = 100  # in a long session; fewer for drafters that compute much

    @pytest.fixture
    def drafter(self) -> Drafter:
        needs("drafter")

    @pytest.fixture
    def target(self) -> TargetPin:
        return fake_pin()

    @pytest.fixture
    def prompt(self) -> Sequence[int]:
        return [5, 6, 7, 8, 9, 5, 6, 7]

    def test_it_is_a_drafter(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        self._check(checks.is_a_drafter, drafter, target, prompt)

    def test_it_starts_with_the_prompt_as_its_history(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        self._check(checks.starts_with_the_prompt, drafter, target, prompt)

    @pytest.mark.parametrize("k", checks.KS)
    def test_a_proposal_has_at_most_k_ids_of_the_vocabulary(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int], k: int
    ) -> None:
        self._check(checks.proposals_are_clean, drafter, target, prompt, ks=[k])

    def test_proposing_changes_no_history(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        self._check(checks.proposing_changes_nothing, drafter, target, prompt)

    def test_a_rollback_leads_back_to_the_committed_history(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        self._check(checks.rolls_back, drafter, target, prompt)

    def test_it_takes_what_was_committed_and_not_what_it_proposed(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        self._check(checks.takes_what_was_committed, drafter, target, prompt)

    def test_it_takes_commits_without_having_proposed(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        self._check(checks.commits_without_proposals, drafter, target, prompt)

    def test_n_commits_of_one_equal_one_of_n(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        self._check(checks.one_commit_or_many, drafter, target, prompt)

    @pytest.mark.parametrize("seed", checks.SEEDS)
    def test_it_keeps_its_history_through_a_long_session(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int], seed: int
    ) -> None:
        self._check(checks.keeps_its_history, drafter, target, prompt, seeds=[seed])

    def test_sessions_do_not_share_a_history(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        self._check(checks.sessions_are_apart, drafter, target, prompt)

    def test_it_can_be_closed_with_a_proposal_outstanding_and_opened_again(
        self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]
    ) -> None:
        self._check(checks.closes_and_reopens, drafter, target, prompt)

    def _check(
        self, check: Callable[..., None], drafter: Drafter, target: TargetPin, prompt: Sequence[int], **extra: Any
    ) -> None:
        __tracebackhide__ = True
        harness = Harness(drafter, target, prompt, deterministic=self.deterministic, rounds=self.rounds)
        try:
            check(harness, **extra)
        except Nonconformance as error:
            raise AssertionError(str(error)) from error
