"""A model some of whose layers keep a state that moves on: three of four, as in Qwen 3.5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY
from pilotfish.hooks.types import EngineOptions, SamplingParams, TargetPin
from pilotfish.plugins._cells import snapshots
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.long_forms import every_kind_once
from tests.plugins.verifiers.courses import course, ids, is_the_same_beside_another
from tests.plugins.verifiers.tiny_gguf import write_hybrid

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

BLOCK = 32
ENDLESS = SamplingParams(temperature=0.8, seed=3, ignore_eos=True)


def load(pin: TargetPin, **more: int) -> CellEngine:
    return LlamaVerifier().load(pin, None, EngineOptions(n_ctx=512, batch_size=BLOCK, threads=1, **more))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a format whose products are alike at every width."""
    folder = tmp_path_factory.mktemp("hybrid")
    path = folder / "hybrid.Q8_0.gguf"
    LlamaVerifier().requantize(write_hybrid(folder / "hybrid.gguf"), path, "Q8_0")
    return path


@pytest.fixture
def hybrid(pin_of: Callable[[Path], TargetPin], weights: Path) -> Iterator[CellEngine]:
    engine = load(pin_of(weights))
    yield engine
    engine.close()


def random_ids(n: int, seed: int = 0) -> list[int]:
    return [int(id) for id in np.random.default_rng(seed).integers(3, 259, n)]


def test_it_has_a_lane_as_wide_as_its_snapshots_lead_back(hybrid: CellEngine) -> None:
    memory = hybrid._slots[0].context.memory
    assert memory.running
    assert 1 < hybrid.lane.max_width <= 1 + memory.snapshots


def test_fewer_snapshots_make_a_narrower_lane(
    pin_of: Callable[[Path], TargetPin], weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "NUMBERS", (2, 1))
    engine = load(pin_of(weights))
    try:
        assert engine.lane.widths == (1, 2, 3)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("n", "sampling"),
    every_kind_once({"40": 40, "270": 270}, {"greedy": GREEDY, "seeded": ENDLESS}, others=pytest.mark.long),
)
def test_rows_after_rejections_are_plains(hybrid: CellEngine, n: int, sampling: SamplingParams) -> None:
    prompt = random_ids(n)
    plain, _ = course(hybrid, prompt, 60, sampling=sampling)
    for seed in (1, 2):
        assert course(hybrid, prompt, 60, ids(plain), seed=seed, sampling=sampling)[0] == plain


def test_a_conversation_goes_on_from_its_whole_state(hybrid: CellEngine) -> None:
    prompt = random_ids(100)
    answer = ids(course(hybrid, prompt, 20)[0])
    later = [*prompt, *answer, 9, 8]
    hybrid.read_prompts_fast(lambda: 1 << 40)
    answers = []
    for draft in ([], answer):
        course(hybrid, prompt, 20, draft, seed=1)
        answers.append(course(hybrid, later, 20, draft, cache_prompt=True))
    assert answers[0] == answers[1]
    assert answers[0][1] >= len(prompt)


def test_an_earlier_prefix_is_kept_up_to_a_mark_and_has_the_bits_of_feeding_it(hybrid: CellEngine) -> None:
    prompt = random_ids(3 * BLOCK + 10)
    course(hybrid, prompt, 5)
    other = [*prompt[: 3 * BLOCK + 4], 9, 8, 7]
    kept, cached = course(hybrid, other, 20, cache_prompt=True)
    assert cached == 3 * BLOCK
    assert course(hybrid, other, 20)[0] == kept
    course(hybrid, prompt, 5)
    assert course(hybrid, [*prompt[:20], 9], 5, cache_prompt=True)[1] == 0  # before the marks


def test_what_a_slot_gave_up_comes_back_to_the_bit(hybrid: CellEngine) -> None:
    hybrid.read_prompts_fast(lambda: 1 << 40)
    hybrid.remember(lambda held: 1 << 40)
    prompt = random_ids(100)
    answer = ids(course(hybrid, prompt, 20)[0])

    def continued(*, between: bool) -> tuple[list[tuple[int, bytes]], int]:
        course(hybrid, [5, 6], 1)
        course(hybrid, prompt, 20, answer, seed=1, cache_prompt=True)
        if between:
            course(hybrid, random_ids(50, 5), 4, cache_prompt=True)
        return course(hybrid, [*prompt, *answer, 9, 8], 20, cache_prompt=True)

    stayed, came_back = continued(between=False), continued(between=True)
    assert stayed == came_back
    assert stayed[1] >= len(prompt)
    assert hybrid.remembered.hits == 1


def test_sessions_beside_each_other_have_their_own_rows(pin_of: Callable[[Path], TargetPin], weights: Path) -> None:
    engine = load(pin_of(weights), slots=2)
    try:
        assert is_the_same_beside_another(engine, random_ids(60), random_ids(40, 1))
    finally:
        engine.close()
