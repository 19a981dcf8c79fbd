"""The verifier suite on the real engine, in each weight format that gives another lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pilotfish.hooks.protocols import TargetEngine
from pilotfish.lab.conformance import VerifierConformance

pytestmark = pytest.mark.model


@pytest.mark.parametrize("quantization", ["Q4_1", "Q8_0", "Q4_K_M"])
class TestLlama(VerifierConformance):
    @pytest.fixture
    def engine(self, engine_of: Callable[[str], TargetEngine], quantization: str) -> TargetEngine:
        return engine_of(quantization)

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode("Write ten lines, each starting with Alpha.\nAlpha one\nAlpha two\n")
