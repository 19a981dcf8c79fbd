"""The verifier suite on the real engines, in each weight format that gives another lane, once on two threads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.hooks.protocols import TargetEngine
from pilotfish.lab.conformance import VerifierConformance
from tests.engines import EngineOf

pytestmark = pytest.mark.model


@pytest.mark.parametrize(
    ("verifier", "weights", "threads"),
    [("llama", "Q4_1", 2), ("llama", "Q4_K_M", 1), ("ik", "Q4_1", 1), ("ik", "Q4_K_M", 1)],
)
class TestVerifier(VerifierConformance):
    @pytest.fixture
    def engine(self, engine_of: EngineOf, verifier: str, weights: str, threads: int) -> TargetEngine:
        return engine_of(weights, verifier, threads)

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode("Write ten lines, each starting with Alpha.\nAlpha one\nAlpha two\n")
