"""The verifier suite on the real engines, in each weight format that gives another lane, on threads, and with slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pilotfish.hooks.protocols import TargetEngine
from pilotfish.lab.conformance import SlotConformance, VerifierConformance
from tests.engines import VERIFIERS, EngineOf, LoadEngine

pytestmark = pytest.mark.model

TEXT = "Write ten lines, each starting with Alpha.\nAlpha one\nAlpha two\n"


@pytest.mark.parametrize(
    ("verifier", "weights", "threads"),
    [("llama", "Q4_1", 2), ("ik", "Q4_K_M", 1), pytest.param("llama", "Q4_K_M", 1, marks=pytest.mark.long)],
)
class TestVerifier(VerifierConformance):
    @pytest.fixture
    def engine(self, engine_of: EngineOf, verifier: str, weights: str, threads: int) -> TargetEngine:
        return engine_of(weights, verifier, threads)

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode(TEXT)


@pytest.fixture(scope="module", params=VERIFIERS)
def slotted(
    request: pytest.FixtureRequest, load_engine: LoadEngine, quantized: Callable[[str], Path]
) -> Iterator[TargetEngine]:
    """Three slots of 256 tokens."""
    loaded = load_engine(quantized("Q4_0"), n_ctx=256, verifier=request.param, slots=3)
    yield loaded
    loaded.close()


class TestSlots(SlotConformance):
    @pytest.fixture
    def engine(self, slotted: TargetEngine) -> TargetEngine:
        return slotted

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode(TEXT)
