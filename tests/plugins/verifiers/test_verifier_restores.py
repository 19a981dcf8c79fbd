"""A model whose memory cannot be cut, as Granite 4's hybrids: the state before a block is copied and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import (
    GREEDY,
    EngineHarness,
    forgets_the_same_with_proposals,
    perfect_proposals_change_nothing,
    ready,
    rolls_back,
)
from pilotfish.daemon.lab.tiny_models.catalogue import architectures
from pilotfish.daemon.lab.tiny_models.making import write
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.types import EngineOptions, SamplingParams, TargetPin
from pilotfish.plugins._cells.lane_check import ALONE, NOT_BACK
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.long_forms import every_kind_once
from tests.plugins.verifiers.courses import course, ids, is_the_same_beside_another
from tests.plugins.verifiers.tiny_gguf import write_mamba

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

BLOCK, VOCABULARY = 32, 600
ENDLESS = SamplingParams(temperature=0.8, seed=3, ignore_eos=True)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, ENDLESS], ids=["greedy", "seeded"])
Load = Callable[..., "CellEngine"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a format whose products are alike at every width."""
    folder = tmp_path_factory.mktemp("granite")
    (granite,) = architectures(["granitehybrid"])
    write(replace(granite, entries=VOCABULARY), folder / "granite.gguf")
    path = folder / "granite.Q8_0.gguf"
    LlamaVerifier().requantize(folder / "granite.gguf", path, "Q8_0")
    return path


@pytest.fixture
def load(pin_of: Callable[[Path], TargetPin], weights: Path) -> Iterator[Load]:
    loaded: list[CellEngine] = []

    def make(path: Path | None = None, **more: int) -> CellEngine:
        options = EngineOptions(n_ctx=512, batch_size=BLOCK, threads=1, **more)
        loaded.append(LlamaVerifier().load(pin_of(path or weights), None, options))
        return loaded[-1]

    yield make
    for engine in loaded:
        engine.close()


@pytest.fixture
def granite(load: Load) -> CellEngine:
    return load()


def random_ids(n: int, seed: int = 0) -> list[int]:
    return [int(id) for id in np.random.default_rng(seed).integers(3, 250, n)]


def wrong(right: list[int]) -> list[int]:
    return [(id + 1) % VOCABULARY for id in right]


def broken(monkeypatch: pytest.MonkeyPatch, go_back: Callable[..., bool]) -> None:
    from pilotfish.plugins._llama.running_context import RunningContext  # which loads the library

    monkeypatch.setattr(RunningContext, "_go_back", go_back)


def test_it_has_a_lane_and_says_what_going_back_takes(granite: CellEngine) -> None:
    memory = granite._slots[0].context.memory
    assert memory.restores
    assert granite.lane.max_width > 8
    assert granite.going_back is not None
    assert 0 < granite.going_back < 1


@pytest.mark.parametrize(
    ("n", "sampling"),
    every_kind_once({"40": 40, "270": 270}, {"greedy": GREEDY, "seeded": ENDLESS}, others=pytest.mark.long),
)
def test_rows_are_plains_however_right_the_drafts_are(granite: CellEngine, n: int, sampling: SamplingParams) -> None:
    prompt = random_ids(n)
    plain, _ = course(granite, prompt, 48, sampling=sampling)
    for draft in (ids(plain), wrong(ids(plain))):
        assert course(granite, prompt, 48, draft, seed=n, sampling=sampling)[0] == plain
    assert len(set(ids(plain))) > 24  # not one that repeats itself


def test_whole_blocks_a_rollback_and_a_full_context_are_as_without_drafts(granite: CellEngine) -> None:
    harness = EngineHarness(granite)
    perfect_proposals_change_nothing(harness)
    rolls_back(harness)
    forgets_the_same_with_proposals(harness)


def test_log_probabilities_are_gone_once_tokens_were_forwarded_again(granite: CellEngine) -> None:
    with ready(granite, random_ids(20)) as session:
        rows = session.verify([])
        session.commit([rows.pick(0)])
        assert rows.logprobs(0, 7, 1).id == 7  # a step keeps its row
        rows = session.verify([5, 6])
        session.commit([rows.pick(0)])
        with pytest.raises(ProtocolViolation):
            rows.logprobs(0, 7, 1)


def test_a_conversation_goes_on_from_where_a_rejection_left_it(granite: CellEngine) -> None:
    granite.read_prompts_fast(lambda: 1 << 40)
    granite.remember(lambda held: 1 << 40)
    prompt = random_ids(100)
    answer = ids(course(granite, prompt, 20)[0])
    later = [*prompt, *answer, 9, 8]
    found = []
    for draft, between in (([], False), (answer, False), (wrong(answer), True)):
        course(granite, [5, 6], 1)
        course(granite, prompt, 20, draft, seed=1, cache_prompt=True)
        if between:
            course(granite, random_ids(50, 5), 4, cache_prompt=True)
        found.append(course(granite, later, 20, draft, cache_prompt=True))
    assert found[0] == found[1] == found[2]
    assert found[0][1] >= len(prompt)
    assert granite.remembered.hits >= 1


def test_a_prefix_is_kept_up_to_the_same_mark_with_and_without_drafts(granite: CellEngine) -> None:
    prompt = random_ids(3 * BLOCK + 10)
    answer = ids(course(granite, prompt, 12)[0])
    other = [*prompt[: 3 * BLOCK + 4], 9, 8, 7]
    fresh, _ = course(granite, other, 20)
    for draft in ([], answer, wrong(answer)):
        course(granite, prompt, 12, draft, seed=2)
        assert course(granite, other, 20, cache_prompt=True) == (fresh, 3 * BLOCK)


def test_sessions_beside_each_other_have_their_own_rows(load: Load) -> None:
    engine = load(slots=2)
    assert is_the_same_beside_another(engine, random_ids(60), random_ids(40, 1))
    assert engine.together(1) == 1


def test_a_state_that_comes_back_with_another_bit_leaves_it_plain(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from pilotfish.plugins._llama.running_context import RunningContext

    go_back = RunningContext._go_back

    def with_noise(self: Any, size: int, data: Any) -> bool:
        numbers = data[-4096:].view(np.float32)
        numbers += 1  # the last of a layer's state
        return go_back(self, size, data)

    broken(monkeypatch, with_noise)
    engine = load()
    assert engine.lane.widths == (1,)
    assert NOT_BACK in engine.lane.reason
    assert engine.going_back is None


def test_where_a_matrix_of_floats_is_multiplied_plain_steps_are_not_padded(load: Load, tmp_path: Path) -> None:
    engine = load(write_mamba(tmp_path / "mamba.gguf"))
    assert (engine.lane.widths, engine.lane.reason) == ((1,), ALONE)
    prompt = random_ids(2 * BLOCK + 5)
    answer, _ = course(engine, prompt, 8)
    assert (
        course(engine, [*prompt, *ids(answer)[:1], 9], 4, cache_prompt=True)[1] >= 2 * BLOCK
    )  # and still keep a prefix
