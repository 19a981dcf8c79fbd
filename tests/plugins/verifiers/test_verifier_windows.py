"""A model whose cache forgets: a sliding window of 8 in a ring of 256 cells, crossed, with drafts that are rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, ready
from pilotfish.hooks.types import EngineOptions, SamplingParams, TargetPin
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import VERIFIERS
from tests.plugins.verifiers.courses import course, digest_of, ids, partly_right
from tests.plugins.verifiers.tiny_gguf import write_sliding_window

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

WINDOW, RING, BLOCK = 8, 256, 16
PROMPT = (1, *range(70, 70 + WINDOW - 1))
ENDLESS = SamplingParams(temperature=0.8, seed=3, repeat_penalty=1.1, ignore_eos=True)
PLENTY = 1 << 40


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a format whose products are alike at every width."""
    folder = tmp_path_factory.mktemp("window")
    path = folder / "window.Q8_0.gguf"
    LlamaVerifier().requantize(write_sliding_window(folder / "window.gguf", WINDOW), path, "Q8_0")
    return path


def load(pin: TargetPin, verifier: str, slots: int = 1) -> CellEngine:
    options = EngineOptions(n_ctx=2 * RING, batch_size=BLOCK, slots=slots, threads=1)
    return VERIFIERS[verifier]().load(pin, None, options)


@pytest.fixture
def windowed(pin_of: Callable[[Path], TargetPin], weights: Path, verifier: str) -> Iterator[CellEngine]:
    engine = load(pin_of(weights), verifier)
    yield engine
    engine.close()


@pytest.fixture
def ring(pin_of: Callable[[Path], TargetPin], weights: Path) -> Iterator[CellEngine]:
    """On libllama, which makes a small cache."""
    engine = load(pin_of(weights), "llama")
    yield engine
    engine.close()


def random_ids(n: int, seed: int = 0) -> list[int]:
    return [int(id) for id in np.random.default_rng(seed).integers(3, 259, n)]


def test_it_has_a_lane_as_any_other(windowed: CellEngine) -> None:
    assert windowed.lane.max_width > 4
    assert windowed.lane.max_context is None


def test_the_small_cache_forgets_what_is_expected_of_it(ring: CellEngine) -> None:
    context = ring._slots[0].context
    assert (context.memory.window, context.memory.ring) == (WINDOW, RING)
    for at in range(0, RING + 64, BLOCK):
        context.feed(random_ids(BLOCK, at))
        assert context._held() == max(0, context.size - RING)


@pytest.mark.parametrize("sampling", [ENDLESS, GREEDY], ids=["seeded", "greedy"])
def test_rows_are_plains_below_across_and_beyond_the_rings_end(windowed: CellEngine, sampling: SamplingParams) -> None:
    plain, _ = course(windowed, PROMPT, RING + 60, sampling=sampling)
    for seed in (1, 2):
        assert course(windowed, PROMPT, RING + 60, ids(plain), seed=seed, sampling=sampling)[0] == plain
    if sampling is ENDLESS:
        assert len(set(ids(plain))) > 5  # it says something


def test_a_cut_over_the_rings_end_leaves_every_cell_at_its_place(ring: CellEngine) -> None:
    """Which a round never needs: it ends with the ring."""
    prompt, behind = random_ids(RING - 3), random_ids(40, 1)
    context = ring._slots[0].context

    def rows(wrong: int) -> list[bytes]:
        context.clear()
        while context.size < len(prompt):
            context.feed(prompt[context.size : context.size + BLOCK])
        if wrong:
            context.forward([*behind[:1], *[5] * wrong], 1 + wrong)
            assert context.cut(len(prompt) + 1)
        else:
            context.step(behind[0])
        found = []
        for token in behind[1:]:
            context.step(token)
            found.append(context.row(0).tobytes())
        return found

    plain = rows(0)
    assert rows(7) == plain
    context._put_at_places = lambda: True  # libllama alone goes on at the ring's beginning
    assert rows(7) != plain


def test_a_round_ends_with_the_ring(ring: CellEngine) -> None:
    with ready(ring, random_ids(RING - 2)) as session:
        assert len(session.verify(random_ids(6))) == 3
        session.rollback()
        assert len(session.verify([])) == 1


def test_an_answer_continued_in_a_later_request_is_the_same_with_and_without_drafts(windowed: CellEngine) -> None:
    first = ids(course(windowed, PROMPT, 40, sampling=ENDLESS)[0])
    for later in ((*PROMPT, *first), (*PROMPT, *first[:20], 9)):
        answers = []
        for draft in ([], first):
            course(windowed, PROMPT, 40, draft, sampling=ENDLESS)
            answers.append(course(windowed, later, 20, draft, cache_prompt=True, sampling=ENDLESS))
        assert answers[0] == answers[1]
        assert answers[0][1] > 0  # a prefix was kept


def test_a_prefix_is_kept_while_its_window_is_there(ring: CellEngine) -> None:
    ring.read_prompts_fast(lambda: 0)
    prompt = random_ids(RING + 100)
    course(ring, prompt, 2)
    _, gone = course(ring, [*prompt[:60], 9, 9], 2, cache_prompt=True)
    assert gone == 0
    course(ring, prompt, 2)
    shorter = [*prompt[: RING + 50], 9, 9]
    plain, kept = course(ring, shorter, 20, cache_prompt=True)
    assert kept == RING + 50
    course(ring, prompt, 2)
    assert course(ring, shorter, 20, ids(plain), seed=1, cache_prompt=True) == (plain, kept)


def test_what_a_slot_gave_up_comes_back_to_the_bit(windowed: CellEngine) -> None:
    """Over the ring's end, too: the state holds the window's cells only, and each comes to its place."""
    windowed.remember(lambda held: PLENTY)
    prompt = random_ids(RING + 30)
    later = [*prompt, *ids(course(windowed, prompt, 10, sampling=ENDLESS)[0]), 9, 8, 7]

    def continued(*, between: bool) -> tuple[list[tuple[int, bytes]], int]:
        course(windowed, [5, 6], 1)
        course(windowed, prompt, 10, sampling=ENDLESS, cache_prompt=True)
        if between:
            course(windowed, random_ids(50, 5), 4, cache_prompt=True)
        return course(windowed, later, 20, sampling=ENDLESS, cache_prompt=True)

    stayed, came_back = continued(between=False), continued(between=True)
    assert stayed == came_back
    assert stayed[1] > 0
    assert windowed.remembered.hits >= 1


@pytest.mark.parametrize("n", [100, RING + 90])
def test_prompts_that_are_read_apart_are_decoded_as_single_steps_are(ring: CellEngine, n: int) -> None:
    ring.exact_cache = True
    ring.read_prompts_fast(lambda: PLENTY)
    prompt = random_ids(n)
    plain, _ = course(ring, prompt, 40, sampling=SEEDED)
    assert course(ring, prompt, 40, ids(plain), seed=1, sampling=SEEDED)[0] == plain
    assert ring.prompts_read.startswith("with stock's cache types")
    later = [*prompt, *ids(plain), *random_ids(60, 2)]
    first = course(ring, later, 20, cache_prompt=True)
    course(ring, prompt, 40, ids(plain), seed=2, sampling=SEEDED)
    assert course(ring, later, 20, ids(first[0]), seed=3, cache_prompt=True) == first
    assert first[1] > n


def test_sessions_that_verify_together_over_the_rings_end_have_their_own_rows(
    pin_of: Callable[[Path], TargetPin], weights: Path
) -> None:
    engine = load(pin_of(weights), "llama", slots=2)
    try:
        prompts = [random_ids(RING - 9, 1), random_ids(40, 2)]
        alone = [course(engine, prompt, 30)[0] for prompt in prompts]
        done: list[list[tuple[int, bytes]]] = [[], []]
        random = np.random.default_rng(3)
        with ready(engine, prompts[0]) as first, ready(engine, prompts[1]) as second:
            sessions = (first, second)
            while min(map(len, done)) < 24:
                width = max(w for w in engine.lane.widths if engine.together(w) > 1)
                proposals = [
                    partly_right(ids(whole[len(found) :]), width - 1, engine.n_vocab, random)
                    for whole, found in zip(alone, done, strict=True)
                ]
                rows = engine.verify_together(list(zip(sessions, proposals, strict=True)))
                for session, said, found, row in zip(sessions, proposals, done, rows, strict=True):
                    picks = []
                    for i in range(len(row)):
                        digest = digest_of(session, i)
                        picks.append((row.pick(i), digest))
                        if picks[i][0] not in said[i : i + 1]:
                            break
                    session.commit([token for token, _ in picks])
                    found += picks
        for whole, found in zip(alone, done, strict=True):
            assert found[:24] == whole[:24]
    finally:
        engine.close()
