"""What every target engine must do: the checks of `pilotfish conformance` as pytest sees them."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.daemon.lab.conformance import verifier_checks as checks
from pilotfish.daemon.lab.conformance.suites.slot_suite import SlotConformance
from pilotfish.daemon.lab.conformance.suites.slot_suite import run as _check
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import SamplingParams


class VerifierConformance(SlotConformance):
    """Needs a fixture `engine`, loaded, with a lane of more than one width, and with slots where it can have several.

    `prompt` are ids that it knows.
    """

    def test_it_is_an_engine(self, engine: TargetEngine) -> None:
        _check(checks.is_an_engine, engine)

    def test_prefill_comes_nearer_to_its_end_with_every_block(
        self, engine: TargetEngine, prompt: Sequence[int]
    ) -> None:
        _check(checks.prefills_in_blocks, engine, prompt)

    def test_it_starts_with_the_prompt_as_its_history(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.starts_with_the_prompt, engine, prompt)

    def test_a_second_run_gives_the_same_tokens(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        _check(checks.repeats_itself, engine, prompt, sampling)

    def test_perfect_proposals_change_no_token_in_any_width(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        _check(checks.perfect_proposals_change_nothing, engine, prompt, sampling)

    def test_rejected_proposals_change_no_token(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        _check(checks.rejected_proposals_change_nothing, engine, prompt, sampling)

    def test_n_commits_of_one_equal_one_of_n(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        _check(checks.one_commit_or_many, engine, prompt, sampling)

    def test_rollback_forgets_the_forward(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.rolls_back, engine, prompt)

    def test_there_is_one_row_more_than_proposals(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.has_a_row_more_than_proposals, engine, prompt)

    def test_calls_out_of_turn_are_refused(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.refuses_calls_out_of_turn, engine, prompt)

    def test_a_reused_prefix_changes_no_token(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.reuses_a_prefix, engine, prompt)

    def test_a_prompt_as_long_as_the_context_is_refused_and_the_engine_lives(
        self, engine: TargetEngine, prompt: Sequence[int]
    ) -> None:
        _check(checks.refuses_a_full_context, engine, prompt)

    def test_it_can_be_closed_in_mid_round_and_opened_again(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.closes_in_mid_round, engine, prompt)

    def test_a_full_context_forgets_the_same_with_proposals(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        _check(checks.forgets_the_same_with_proposals, engine, prompt)
