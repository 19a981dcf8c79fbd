"""The verifier suite on the real engines, in each weight format that gives another lane, on threads, and with slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import Lane, SamplingParams
from pilotfish.lab.conformance import SlotConformance, VerifierConformance
from tests.engines import VERIFIERS, EngineOf, LoadEngine

pytestmark = pytest.mark.model

TEXT = "Write ten lines, each starting with Alpha.\nAlpha one\nAlpha two\n"


def in_short(*one: SamplingParams, others: Sequence[SamplingParams]) -> list[object]:
    return [*one, *(pytest.param(sampling, marks=pytest.mark.long) for sampling in others)]


def title(sampling: SamplingParams) -> str:
    return "greedy" if sampling is GREEDY else "seeded"


def some_widths(lane: Lane) -> Lane:
    """The lane with its narrowest two widths, one from the middle, and the widest."""
    middle = lane.widths[len(lane.widths) // 2]
    return replace(lane, widths=(*lane.widths[:2], middle, lane.widths[-1]))


def every_width(lane: Lane) -> Lane:
    return lane


Widths = Callable[[Lane], Lane]


@pytest.fixture(params=[some_widths, pytest.param(every_width, marks=pytest.mark.long)])
def widths(request: pytest.FixtureRequest) -> Widths:
    return request.param


@contextmanager
def limited(engine: TargetEngine, widths: Widths) -> Iterator[TargetEngine]:
    whole = engine.lane
    engine.lane = widths(whole)
    try:
        yield engine
    finally:
        engine.lane = whole


@pytest.mark.parametrize(("weights", "threads"), [("Q4_1", 2), pytest.param("Q4_K_M", 1, marks=pytest.mark.long)])
class TestVerifier(VerifierConformance):
    @pytest.fixture
    def engine(self, engine_of: EngineOf, weights: str, threads: int, widths: Widths) -> Iterator[TargetEngine]:
        with limited(engine_of(weights, "llama", threads), widths) as engine:
            yield engine

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode(TEXT)

    @pytest.fixture(params=in_short(GREEDY, others=[SEEDED]), ids=title)
    def sampling(self, request: pytest.FixtureRequest) -> SamplingParams:
        return request.param


class TestOtherEngine(VerifierConformance):
    @pytest.fixture
    def engine(self, engine_of: EngineOf, widths: Widths) -> Iterator[TargetEngine]:
        with limited(engine_of("Q4_K_M", "ik"), widths) as engine:
            yield engine

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode(TEXT)

    @pytest.fixture(params=in_short(SEEDED, others=[GREEDY]), ids=title)
    def sampling(self, request: pytest.FixtureRequest) -> SamplingParams:
        return request.param


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
    def engine(self, slotted: TargetEngine, widths: Widths) -> Iterator[TargetEngine]:
        with limited(slotted, widths) as engine:
            yield engine

    @pytest.fixture
    def prompt(self, engine: TargetEngine) -> Sequence[int]:
        return engine.tokenizer.encode(TEXT)

    @pytest.fixture(params=in_short(SEEDED, others=[GREEDY]), ids=title)
    def sampling(self, request: pytest.FixtureRequest) -> SamplingParams:
        return request.param
