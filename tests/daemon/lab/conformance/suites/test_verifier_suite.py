"""The verifier suite passes the fake engine and catches engines that are not exact."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED
from pilotfish.daemon.lab.fakes.fake_engine import FakeSession
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import Ack, SamplingParams
from pilotfish.lab.conformance import VerifierConformance
from pilotfish.lab.fakes import FakeEngine

PROMPT = [5, 6, 7, 8, 9, 5, 6, 7, 8, 10, 11]


class TestFakeEngine(VerifierConformance):
    @pytest.fixture
    def engine(self) -> TargetEngine:
        return FakeEngine()


def test_an_engine_whose_rows_depend_on_the_width_is_caught() -> None:
    with pytest.raises(AssertionError):
        VerifierConformance().test_perfect_proposals_change_no_token_in_any_width(
            FakeEngine(noise=True), PROMPT, GREEDY
        )


def test_an_engine_that_acknowledges_another_history_is_caught() -> None:
    engine = FakeEngine()
    engine.lie_at = 3
    with pytest.raises(AssertionError):
        VerifierConformance().test_a_second_run_gives_the_same_tokens(engine, PROMPT, GREEDY)


def test_an_engine_that_draws_for_rejected_rows_is_caught() -> None:
    class Spendthrift(FakeSession):
        def commit(self, tokens: Sequence[int]) -> Ack:
            self._random.random()
            return super().commit(tokens)

    class Engine(FakeEngine):
        def open(self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True) -> FakeSession:
            session = super().open(prompt, sampling, cache_prompt=cache_prompt)
            session.__class__ = Spendthrift
            return session

    with pytest.raises(AssertionError):
        VerifierConformance().test_perfect_proposals_change_no_token_in_any_width(Engine(), PROMPT, SEEDED)
