"""A full context forgets on real engines: the same tokens with drafts and without, time after time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.core.context_window import ContextShift
from pilotfish.daemon.core.controller import Eager
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, StopType
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.types import EngineSetting, Lane, SamplingParams, TargetPin
from tests.engines import LoadEngine
from tests.plugins.verifiers.tiny_gguf import write_sliding_window

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

TEXT = "The quick brown fox jumps over the lazy dog. A list of animals, again and again:"
CONTEXT, PROMPT = 256, 200  # tokens
ONCE, ANSWER = 80, 190  # after which the end was met once, and twice
WIDTHS = (1, 2, 4, 8)
SETTINGS = {
    "llama, bf16 keys": EngineSetting("bf16", "f16"),
    "llama, q8_0 keys": EngineSetting("q8_0", "f16"),
    "llama, f16 keys": EngineSetting("f16", "f16"),
    "ik": EngineSetting("f16", "f16", flash_attention=False, engine="ik"),
}


@pytest.fixture(scope="module")
def engine_in(load_engine: LoadEngine, quantized: Callable[[str], Path]) -> Iterator[Callable[[str], CellEngine]]:
    """`engine_in("ik")`: one in that setting, which the tests here share."""
    loaded: dict[str, CellEngine] = {}

    def engine(name: str) -> CellEngine:
        if name not in loaded:
            setting = SETTINGS[name]
            lane = Lane("test", WIDTHS, setting)
            loaded[name] = load_engine(quantized("Q4_0"), lane, CONTEXT, batch_size=64, verifier=setting.engine)
        return loaded[name]

    yield engine
    for one in loaded.values():
        one.close()


def prompt_of(engine: CellEngine) -> tuple[int, ...]:
    return tuple(engine.tokenizer.encode(TEXT * 12)[:PROMPT])


def generate(
    engine: CellEngine, pin: TargetPin, *, drafts: Sequence[int] = (), temperature: float = 0.0,
    prompt: tuple[int, ...] = (), n: int = ANSWER,
) -> tuple[list[int], Outcome]:  # fmt: skip
    tables = {"oracle": {"tokens": list(drafts), "wrong_every": 5}} if drafts else {}
    config = Config(drafters=Drafters(tuple(tables), tables))
    generator = Generator(engine, pin, Registry.load(config), config, controller=Eager)
    sampling = SamplingParams(temperature=temperature, seed=5, repeat_penalty=1.1, ignore_eos=True)
    request = GenerationRequest(
        prompt or prompt_of(engine), sampling, n, cache_prompt=False, shift=ContextShift(keep=4)
    )
    tokens: list[OutputToken] = []
    outcome = generator.generate(request, tokens.extend, lambda: False)
    return [token.token for token in tokens], outcome


@pytest.mark.parametrize(
    ("setting", "temperature"), [("llama, bf16 keys", 0.8), ("llama, q8_0 keys", 0.0), ("ik", 0.8)]
)
def test_on_equals_off_across_the_end(
    engine_in: Callable[[str], CellEngine], pin_of: Callable[[Path], TargetPin], smollm2_path: Path, setting: str,
    temperature: float,
) -> None:  # fmt: skip
    engine, pin = engine_in(setting), pin_of(smollm2_path)
    plain, outcome = generate(engine, pin, temperature=temperature)
    assert (len(plain), outcome.stop_type, outcome.truncated) == (ANSWER, StopType.LIMIT, True)
    assert outcome.discarded > (CONTEXT - 5) // 2  # more than once
    assert len(set(plain[-40:])) > 5  # it still says something
    drafted, other = generate(engine, pin, drafts=plain, temperature=temperature)
    assert other.timings.draft_n_accepted > 50
    assert drafted == plain
    assert other.discarded == outcome.discarded


def test_an_answer_that_forgot_leaves_nothing_for_the_next(
    engine_in: Callable[[str], CellEngine], pin_of: Callable[[Path], TargetPin], smollm2_path: Path
) -> None:
    engine, pin = engine_in("llama, bf16 keys"), pin_of(smollm2_path)
    first, outcome = generate(engine, pin, n=ONCE)
    assert outcome.discarded > 0
    session = engine.open(prompt_of(engine), SamplingParams(temperature=0))
    assert session.cached == 0
    session.close()
    assert generate(engine, pin, n=ONCE)[0] == first


def test_a_window_that_libllama_cannot_shift_ends_the_answer(
    load_engine: LoadEngine, pin_of: Callable[[Path], TargetPin], tmp_path: Path
) -> None:
    path = write_sliding_window(tmp_path / "window.gguf")
    engine = load_engine(path, None, 2 * CONTEXT, batch_size=16)  # where the window's cache is the smaller one
    try:
        tokens, outcome = generate(engine, pin_of(path), prompt=(1, *range(70, 77)), n=1000)
        assert (outcome.stop_type, outcome.truncated, outcome.discarded) == (StopType.LIMIT, True, 0)
        assert len(tokens) == 2 * CONTEXT - 8
    finally:
        engine.close()


def test_what_cannot_be_moved_is_fed_again(
    engine_in: Callable[[str], CellEngine], pin_of: Callable[[Path], TargetPin], smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from pilotfish.plugins._llama import shifting

    engine, pin = engine_in("llama, bf16 keys"), pin_of(smollm2_path)
    monkeypatch.setattr(shifting, "turned_beside", lambda *cells: False)
    plain, outcome = generate(engine, pin, n=ONCE)
    assert outcome.discarded > 0
    assert generate(engine, pin, drafts=plain, n=ONCE)[0] == plain


def test_a_shift_out_of_turn_or_of_everything_is_refused(engine_in: Callable[[str], CellEngine]) -> None:
    session = engine_in("llama, bf16 keys").open(list(range(10, 30)), SamplingParams(temperature=0))
    with closing(session):
        with pytest.raises(ProtocolViolation, match="prefilling"):
            session.shift(1, 2)
        while session.prefill():
            pass
        with pytest.raises(ProtocolViolation, match="cannot go"):
            session.shift(4, 16)
        session.shift(4, 8)
        ack = session.rollback()
        assert ack.position == 20  # the history is whole
        with pytest.raises(ValueError, match="kept the first time"):
            session.shift(5, 1)


def test_keys_are_moved_as_exactly_as_their_type_allows(engine_in: Callable[[str], CellEngine]) -> None:
    """The rows behind moved cells, beside those of a context whose keys libllama turns in place."""
    rows = {}
    for keys in ("bf16", "f16"):
        engine = engine_in(f"llama, {keys} keys")
        prompt = engine.tokenizer.encode(TEXT * 12)[:180]
        with closing(engine.open(prompt, SamplingParams(temperature=0), cache_prompt=False)) as session:
            while session.prefill():
                pass
            session.shift(4, 80)
            session.verify([])
            rows[keys] = session.slot.context.row(0).copy()
    close = np.corrcoef(rows["bf16"], rows["f16"])[0, 1]
    assert close > 0.99  # 0.8 where keys keep their old turn
