"""How far one engine's rows are from another's: what is compared, on how much text, and on real models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotfish.daemon.certify.candidates import IK_PROMPT_BLOCK, prompt_block, stock_setting
from pilotfish.daemon.certify.divergence import LEAST_ROWS, ROWS, START, WIDTH, StockRows
from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.certify.suitability import BOUND
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import EngineOptions, EngineSetting
from pilotfish.manifests.pins import pin_file
from tests.engines import GEMMA, VERIFIERS
from tests.fakes.probe import FakeProbe

TEXT = list(range(500))
BOS = 999


def driver_of(
    probe: FakeProbe, *, bos: int | None = None, seconds: float = 1e9, clock: FakeClock | None = None
) -> ProbeDriver:
    return ProbeDriver(probe, Material(probe.n_vocab, TEXT, bos), Deadline(seconds, clock or FakeClock()), block=128)


def divergence(ours: FakeProbe, theirs: FakeProbe, bos: int | None = None) -> float:
    rows = StockRows(driver_of(ours, bos=bos), 1e9)
    try:
        return rows.divergence_of(driver_of(theirs, bos=bos))
    finally:
        rows.close()


class Reading(FakeProbe):
    """Remembers what it was fed; behind a prompt block of 32 and more its rows are others."""

    def __init__(self, *, wide_is_wrong: bool = False) -> None:
        super().__init__(sticky=wide_is_wrong, kernel=lambda width, cells: int(width >= 32))
        self.read: list[int] = []
        self.rows_given = 0

    def feed(self, tokens: Sequence[int]) -> None:
        self.read += tokens
        super().feed(tokens)

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        self.read += tokens
        self.rows_given += len(tokens)
        return super().logits(tokens, width)


def test_equal_rows_do_not_diverge_and_noise_shows_in_nats() -> None:
    assert divergence(FakeProbe(), FakeProbe()) == 0.0
    assert divergence(FakeProbe(), FakeProbe(apart=0.1)) == pytest.approx(0.1**2 / 2, rel=0.3)


def test_the_text_begins_as_the_models_prompts_do() -> None:
    for bos, begin in ((BOS, [BOS, *TEXT]), (None, TEXT)):
        probe = Reading()
        divergence(FakeProbe(), probe, bos)
        assert probe.read == begin[: START + ROWS]
        assert probe.rows_given == ROWS


def test_random_ids_begin_with_nothing() -> None:
    assert Material(1000, TEXT, BOS).ids(0, 50) == Material(1000, TEXT).ids(0, 50)


def test_prompt_blocks_that_are_wrong_where_they_are_wide_show() -> None:
    """As ik_llama.cpp's are for two number formats, from 32 tokens on."""
    assert START > IK_PROMPT_BLOCK
    assert divergence(FakeProbe(), Reading(wide_is_wrong=True)) > BOUND
    assert divergence(FakeProbe(), FakeProbe(kernel=lambda width, cells: int(width >= 200), sticky=True)) == 0.0


def test_a_short_context_has_fewer_rows_and_none_is_an_error() -> None:
    rows = StockRows(driver_of(FakeProbe(n_ctx=64)), 1e9)
    assert 0 < rows.rows < ROWS
    rows.close()
    with pytest.raises(EngineError, match="no room for rows"):
        StockRows(driver_of(FakeProbe(n_ctx=WIDTH)), 1e9)


def test_a_slow_model_is_compared_by_fewer_rows_on_both_engines() -> None:
    clock = FakeClock()
    slow = FakeProbe(clock=clock, cost=lambda width: 10.0)
    rows = StockRows(driver_of(slow, clock=clock), 20.0)
    assert rows.rows == LEAST_ROWS
    assert not rows.complete
    other = Reading()
    rows.divergence_of(driver_of(other))
    assert other.rows_given == LEAST_ROWS
    rows.close()


@pytest.fixture
def measured(quantized: Callable[[str], Path], tmp_path: Path) -> Callable[..., list[float]]:
    """`measured(model, bos=..., seconds=...)`: how far both engines' exact settings are from libllama's stock rows."""

    def divergences(model: str, *, bos: bool = True, seconds: float = 1e9) -> list[float]:
        pin, options = pin_file(quantized(model), tmp_path), EngineOptions(n_ctx=512, threads=1, state_dir=tmp_path)

        @contextmanager
        def driver(setting: EngineSetting) -> Iterator[ProbeDriver]:
            probe = VERIFIERS[setting.engine]().probe(pin, setting, WIDTH, options)
            begin = pin.tokenizer.bos if bos and pin.tokenizer.add_bos else None
            material = Material(probe.n_vocab, probe.encode(SAMPLE), begin)
            yield ProbeDriver(probe, material, Deadline(1e9), prompt_block(options, setting.engine))
            probe.close()

        with driver(stock_setting(options, "llama")) as stock:
            rows = StockRows(stock, seconds)
        found = []
        for setting in (EngineSetting("bf16", "f16"), stock_setting(options, "ik")):
            with driver(setting) as other:
                found.append(rows.divergence_of(other))
        rows.close()
        return found

    return divergences


@pytest.mark.model
def test_real_engines_are_as_near_to_each_other_as_one_is_to_itself_in_another_setting(
    measured: Callable[..., list[float]],
) -> None:
    """In a format whose wide blocks ik_llama.cpp computes wrongly, and which is fed in narrow ones."""
    lane, other_engine = measured("Q4_1")
    assert 0 < lane < BOUND / 4
    assert 0 < other_engine < BOUND / 4


@pytest.mark.model
@pytest.mark.parametrize("seconds", [0, pytest.param(1e9, marks=pytest.mark.long)], ids=["the least rows", "every row"])
def test_without_the_begin_that_a_model_expects_every_setting_scatters_farther(
    measured: Callable[..., list[float]], seconds: float
) -> None:
    expected, without = measured(GEMMA, seconds=seconds), measured(GEMMA, bos=False, seconds=seconds)
    assert all(0 < near < BOUND / 4 for near in expected)
    assert all(2 * near < far for near, far in zip(expected, without, strict=True))
