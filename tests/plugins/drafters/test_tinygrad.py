"""A small GGUF that drafts through tinygrad, here on its CPU device: what it computes, holds and leases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.hooks.errors import ConfigError, DeviceBusy, EngineError
from pilotfish.hooks.protocols import Drafter, LoadableDrafter
from pilotfish.hooks.types import EngineOptions, Proposal, SamplingParams, TargetPin
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters._model_session import MIN_CONFIDENCE
from pilotfish.plugins.drafters.llama import LlamaDrafter
from pilotfish.plugins.drafters.tinygrad import TinygradDrafter
from tests.fakes.session import answer
from tests.plugins.drafters.leasing_host import LeasingHost
from tests.plugins.drafters.tiny_families import N_VOCAB, write_family
from tests.plugins.verifiers.tiny_gguf import write_mamba

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

TEXT = "One, two, three, four, five,"
PROMPT = [1, *range(60, 100)]  # two blocks

Load = Callable[..., TinygradDrafter]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> LeasingHost:
    return LeasingHost(tmp_path_factory.mktemp("tinygrad"))


@pytest.fixture(scope="module")
def load(host: LeasingHost) -> Iterator[Load]:
    """`load(path, n_ctx=..., **table)`: a loaded drafter that proposes however unsure it is; unloaded at the end."""
    drafters: list[TinygradDrafter] = []

    def loaded(path: Path, n_ctx: int = 512, **table: Any) -> TinygradDrafter:
        drafter = TinygradDrafter({"model": str(path), "min_confidence": 0, "device": "CPU", **table})
        drafters.append(drafter)
        drafter.load(host, fake_pin(), EngineOptions(n_ctx=n_ctx))
        return drafter

    yield loaded
    for drafter in drafters:
        drafter.unload()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def small(load: Load, tiny: Path) -> TinygradDrafter:
    return load(tiny)


def proposal_of(drafter: Drafter, prompt: Sequence[int], k: int = 6) -> Proposal:
    with closing(drafter.open(fake_pin(), prompt)) as session:
        return session.propose(k)


@pytest.mark.drafters
class TestConformance(DrafterConformance):
    deterministic = False  # other blocks, other last bits of the confidence; the tokens are compared below

    @pytest.fixture
    def drafter(self, small: TinygradDrafter) -> Drafter:
        return small

    @pytest.fixture
    def target(self) -> TargetPin:
        return fake_pin(N_VOCAB)

    def test_it_proposes_at_all(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        assert isinstance(drafter, LoadableDrafter)
        assert len(proposal_of(drafter, prompt, 7)) > 0


@pytest.mark.drafters
@pytest.mark.model
def test_smollm2_drafts_for_smollm2_and_no_token_changes(
    engine: CellEngine, load: Load, smollm2_path: Path, host: LeasingHost
) -> None:
    request = GenerationRequest(tuple(engine.tokenizer.encode(TEXT)), SamplingParams(temperature=0), n_predict=40)
    plain = answer(engine, request)
    # Setting up a forward of 30 layers takes tinygrad seconds: one kind is enough here.
    drafter = load(smollm2_path, min_confidence=MIN_CONFIDENCE, block=1)
    drafted = answer(engine, request, [drafter], most=7, deadline=60)
    assert drafted.ids == plain.ids
    counts = drafted.outcome.timings
    assert counts.draft_n >= 16
    assert counts.draft_n_accepted > 0.9 * counts.draft_n
    assert drafter.vocabulary is not None
    assert drafter.vocabulary.pin == host.pin(str(smollm2_path)).tokenizer  # so that ids pass unchanged


@pytest.mark.drafters
@pytest.mark.model
def test_it_computes_what_libllama_computes(small: TinygradDrafter, tiny: Path, host: LeasingHost) -> None:
    assert_close(proposal_of(small, PROMPT), by_libllama(tiny, host))


@pytest.mark.drafters
@pytest.mark.model
def test_it_computes_with_quantized_weights(load: Load, host: LeasingHost, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    stored = write_family(tmp_path / "stored.gguf", stored=kind)
    exact = write_family(tmp_path / "exact.gguf", rounded=kind)
    assert_close(proposal_of(load(stored, block=1), PROMPT), by_libllama(exact, host))


def assert_close(found: Proposal, expected: Proposal) -> None:
    assert found.tokens == expected.tokens
    assert found.confidence == pytest.approx(expected.confidence, rel=0.05)  # weights are cast to half precision


def by_libllama(path: Path, host: LeasingHost) -> Proposal:
    drafter = LlamaDrafter({"model": str(path), "min_confidence": 0, "cache_type_k": "f32", "cache_type_v": "f32"})
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=512))
    try:
        return proposal_of(drafter, PROMPT)
    finally:
        drafter.unload()


@pytest.mark.drafters
@pytest.mark.parametrize("fed", [1, 2, 31, 32, 33, 40])
def test_a_guess_does_not_depend_on_the_blocks_that_led_to_it(small: TinygradDrafter, fed: int) -> None:
    history = [*PROMPT, *range(100, 140)]
    proposal_of(small, [5])  # nothing to reuse is left
    with closing(small.open(fake_pin(), history[:-fed])) as session:
        session.propose(3)  # cells that the rest overwrites
        session.commit(history[-fed:])
        grown = session.propose(4)
    proposal_of(small, [5])
    fresh = proposal_of(small, history, 4)
    assert grown.tokens == fresh.tokens
    assert grown.confidence == pytest.approx(fresh.confidence, rel=1e-3)


@pytest.mark.drafters
def test_the_whole_context_can_be_filled(small: TinygradDrafter) -> None:
    with closing(small.open(fake_pin(), [60 + i % 90 for i in range(509)])) as session:
        assert len(session.propose(15)) == 4  # the last one needs no cell
        session.commit([1] * 4)
        assert len(session.propose(15)) == 0


@pytest.mark.drafters
def test_the_footprint_is_the_file_and_float32_cells(host: LeasingHost, tiny: Path, small: TinygradDrafter) -> None:
    footprint = small.footprint(host, fake_pin(), EngineOptions(n_ctx=512))
    cells = 512 * 2 * 2 * 2 * 32 * 4  # tokens, keys and values, layers, heads, their size, bytes
    assert footprint.device == "cpu"
    assert 0 < tiny.stat().st_size - footprint.weights < 2**14  # the header
    assert cells < footprint.cache < cells + 2**20
    named = TinygradDrafter({"model": str(tiny), "device": "nv"})
    assert named.footprint(host, fake_pin(), EngineOptions()).device == "NV"


@pytest.mark.drafters
def test_a_device_for_one_process_is_leased_before_it_is_opened(tiny: Path, tmp_path: Path) -> None:
    busy = LeasingHost(tmp_path, busy=("NV", "QCOM"))
    for device in busy.busy:
        drafter = TinygradDrafter({"model": str(tiny), "device": device})
        with pytest.raises(DeviceBusy, match=f"{device} is held by process 4711"):
            drafter.load(busy, fake_pin(), EngineOptions())


@pytest.mark.drafters
def test_a_device_that_does_not_open_is_not_leased_any_longer(tiny: Path, tmp_path: Path) -> None:
    host = LeasingHost(tmp_path)
    drafter = TinygradDrafter({"model": str(tiny), "device": "QCOM"})
    with pytest.raises(EngineError, match="cannot use the device QCOM"):
        drafter.load(host, fake_pin(), EngineOptions())
    assert host.held == []


@pytest.mark.drafters
def test_a_lease_lasts_as_long_as_tinygrad_has_the_device_open(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilotfish.plugins.drafters import _tinygrad_model

    monkeypatch.setattr(_tinygrad_model, "EXCLUSIVE", ("CPU",))
    monkeypatch.setattr(_tinygrad_model, "_leases", {})
    host = LeasingHost(tmp_path)
    drafter = TinygradDrafter({"model": str(tiny), "device": "CPU", "block": 1})
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=64))
    drafter.unload()
    assert host.held == ["CPU"]
    assert _tinygrad_model.thread.run(_tinygrad_model.open_device, "CPU", host) == "CPU"
    assert host.held == ["CPU"]  # and not twice


@pytest.mark.drafters
def test_the_cpu_device_without_a_compiler_says_what_to_install(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilotfish.plugins.drafters import _tinygrad_model

    monkeypatch.setattr(_tinygrad_model, "_leases", {})
    monkeypatch.setenv("CC", "no-such-clang")
    with pytest.raises(EngineError, match=r"needs no-such-clang.*apt-get install clang"):
        TinygradDrafter({"model": str(tiny), "device": "CPU"}).load(LeasingHost(tmp_path), fake_pin(), EngineOptions())


@pytest.mark.drafters
def test_a_model_that_cannot_take_tokens_back_is_refused_by_name(load: Load, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"recurrent\.gguf.*take back"):
        load(write_mamba(tmp_path / "recurrent.gguf"))


@pytest.mark.drafters
def test_after_unloading_an_open_session_fails_cleanly(host: LeasingHost, tiny: Path) -> None:
    drafter = TinygradDrafter({"model": str(tiny), "device": "CPU", "block": 1, "min_confidence": 0})
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=64))
    session = drafter.open(fake_pin(), [5, 6, 7])
    drafter.unload()
    drafter.unload()
    assert drafter.vocabulary is None
    with pytest.raises(EngineError, match="unloaded"):
        session.propose(3)
    with pytest.raises(EngineError, match="not loaded"):
        drafter.open(fake_pin(), [5])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "drafters.tinygrad.model: expected a name"),
        ({"model": "x", "device": "gpu"}, "drafters.tinygrad.device: expected one of"),
        ({"model": "x", "block": 0}, "drafters.tinygrad.block"),
        ({"model": "x", "context": -1}, "drafters.tinygrad.context"),
    ],
)
def test_a_wrong_table_is_refused_with_the_keys_path(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TinygradDrafter(table)


@pytest.mark.parametrize("missing", ["tinygrad", "pilotfish.plugins.drafters._tinygrad_model"])
def test_without_tinygrad_the_message_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch, host: LeasingHost, tiny: Path
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    drafter = TinygradDrafter({"model": str(tiny)})
    for call in (drafter.footprint, drafter.load) if missing == "tinygrad" else (drafter.load,):
        with pytest.raises(EngineError, match=r"pip install 'pilotfish\[tinygrad\]'"):
            call(host, fake_pin(), EngineOptions())
