"""A model whose cache forgets: a sliding window of 8, crossed, with drafters that would be rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.core.controller import Eager
from pilotfish.daemon.core.generation import GenerationRequest, OutputToken
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.types import EngineOptions, SamplingParams, TargetPin
from tests.engines import VERIFIERS
from tests.plugins.verifiers.tiny_gguf import write_sliding_window

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

PROMPT = (1, *range(70, 77))  # as long as the window
SAMPLING = SamplingParams(temperature=0.8, seed=3, repeat_penalty=1.1, ignore_eos=True)


@pytest.fixture
def windowed(
    pin_of: Callable[[Path], TargetPin], tmp_path: Path, verifier: str
) -> Iterator[tuple[CellEngine, TargetPin]]:
    pin = pin_of(write_sliding_window(tmp_path / "window.gguf"))
    engine = VERIFIERS[verifier]().load(pin, None, EngineOptions(n_ctx=256, batch_size=16))
    yield engine, pin
    engine.close()


def generate(
    engine: CellEngine, pin: TargetPin, prompt: tuple[int, ...], n: int, *, drafts: bool, cache: bool = False
) -> list[int]:
    tables = {"oracle": {"tokens": [5] * n, "wrong_every": 2}} if drafts else {}
    config = Config(drafters=Drafters(tuple(tables), tables))
    generator = Generator(engine, pin, Registry.load(config), config, controller=Eager)
    output_tokens: list[OutputToken] = []
    request = GenerationRequest(prompt, SAMPLING, n_predict=n, cache_prompt=cache)
    outcome = generator.generate(request, output_tokens.extend, lambda: False)
    assert outcome.stop_type == "limit"
    return [output_token.token for output_token in output_tokens]


def test_it_is_found_out_at_load_and_said(windowed: tuple[CellEngine, TargetPin]) -> None:
    engine, _ = windowed
    if engine.engine.name == "llama":
        assert engine.lane.widths == (1,)
        assert "sliding window" in engine.lane.reason
    else:  # it has no window-sized cache
        assert engine.lane.max_width > 1


def test_the_tokens_are_plains_whatever_is_drafted(windowed: tuple[CellEngine, TargetPin]) -> None:
    plain = generate(*windowed, PROMPT, 40, drafts=False)
    assert len(set(plain)) > 5  # it says something
    assert generate(*windowed, PROMPT, 40, drafts=True) == plain


def test_an_answer_continued_in_a_later_request_is_the_same_with_and_without_the_cache(
    windowed: tuple[CellEngine, TargetPin],
) -> None:
    first = tuple(generate(*windowed, PROMPT, 40, drafts=False))
    longer, other = (*PROMPT, *first), (*PROMPT, *first[:20], 9)
    for prompt in (longer, other):
        generate(*windowed, PROMPT, 40, drafts=False, cache=True)
        cached = generate(*windowed, prompt, 20, drafts=True, cache=True)
        assert generate(*windowed, prompt, 20, drafts=False, cache=False) == cached


def test_where_the_window_forgets_no_conversation_is_kept_beside_the_slot(
    windowed: tuple[CellEngine, TargetPin],
) -> None:
    engine, _ = windowed
    engine.remember(lambda held: 1 << 30)
    first = generate(*windowed, PROMPT, 40, drafts=False, cache=True)
    generate(*windowed, (1, *range(90, 110)), 4, drafts=False, cache=True)
    assert generate(*windowed, PROMPT, 40, drafts=False, cache=True) == first
    if engine.engine.name == "llama":
        assert "sliding window" in engine.remembered.obstacle
    else:
        assert engine.remembered.entries > 0
