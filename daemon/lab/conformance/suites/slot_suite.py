"""What every engine with slots must do: the checks of `pilotfish conformance` as pytest sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pilotfish.daemon.lab.conformance import slot_checks as checks
from pilotfish.daemon.lab.conformance.harness import Nonconformance
from pilotfish.daemon.lab.conformance.suites.own_fixtures import needs
from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, PROMPT, SEEDED, EngineHarness
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import SamplingParams


class SlotConformance:
    """Needs a fixture `engine`, loaded, with slots, and with a lane of more than one width.

    `prompt` are ids that it knows.
    """

    @pytest.fixture
    def engine(self) -> TargetEngine:
        needs("engine")

    @pytest.fixture
    def prompt(self) -> Sequence[int]:
        return PROMPT

    @pytest.fixture(params=[GREEDY, SEEDED], ids=["greedy", "seeded"])
    def sampling(self, request: pytest.FixtureRequest) -> SamplingParams:
        params: SamplingParams = request.param
        return params

    def test_a_session_gets_the_slot_it_asks_for(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        run(checks.gives_the_slot_asked_for, engine, prompt)

    def test_rows_beside_other_slots_are_those_alone(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        run(checks.keeps_slots_apart, engine, prompt)

    def test_rows_of_joint_forwards_are_those_alone(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        run(checks.verifies_together_as_alone, engine, prompt)

    def test_what_ends_changes_no_row_beside_it(self, engine: TargetEngine, prompt: Sequence[int]) -> None:
        run(checks.an_end_changes_no_other, engine, prompt)

    def test_a_conversation_that_was_put_aside_goes_on_the_same(
        self, engine: TargetEngine, prompt: Sequence[int], sampling: SamplingParams
    ) -> None:
        run(checks.remembers_and_changes_nothing, engine, prompt, sampling)


def run(
    check: Callable[[EngineHarness], None],
    engine: TargetEngine,
    prompt: Sequence[int] = PROMPT,
    sampling: SamplingParams | None = None,
) -> None:
    """Put `engine` through one check; what it does not do is an AssertionError."""
    __tracebackhide__ = True
    try:
        check(EngineHarness(engine, prompt, (sampling,) if sampling else (GREEDY, SEEDED)))
    except Nonconformance as error:
        raise AssertionError(str(error)) from error
