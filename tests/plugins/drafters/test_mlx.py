"""A small model that drafts through MLX: what it computes, what it takes, and that no token changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.hooks.errors import BrokenModel, ConfigError, EngineError
from pilotfish.hooks.protocols import Drafter, LoadableDrafter
from pilotfish.hooks.types import EngineOptions, Proposal, SamplingParams, TargetPin
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters._model_session import MIN_CONFIDENCE
from pilotfish.plugins.drafters.llama import LlamaDrafter
from pilotfish.plugins.drafters.mlx import MLXDrafter
from tests.fakes.session import answer
from tests.plugins.drafters.leasing_host import LeasingHost
from tests.plugins.drafters.tiny_families import N_VOCAB, write_family

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

TEXT = "One, two, three, four, five,"
PROMPT = [1, *range(60, 100)]  # longer than the forward that computes rows

Load = Callable[..., MLXDrafter]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> LeasingHost:
    return LeasingHost(tmp_path_factory.mktemp("mlx"))


@pytest.fixture(scope="module")
def load(host: LeasingHost) -> Iterator[Load]:
    """`load(path, n_ctx=..., **table)`: a loaded drafter that proposes however unsure it is; unloaded at the end."""
    drafters: list[MLXDrafter] = []

    def loaded(path: Path, n_ctx: int = 512, **table: Any) -> MLXDrafter:
        drafter = MLXDrafter({"model": str(path), "min_confidence": 0, **table})
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
def small(load: Load, tiny: Path) -> MLXDrafter:
    return load(tiny)


def proposal_of(drafter: Drafter, prompt: Sequence[int], k: int = 6) -> Proposal:
    with closing(drafter.open(fake_pin(), prompt)) as session:
        return session.propose(k)


@pytest.mark.drafters
class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self, small: MLXDrafter) -> Drafter:
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
    drafter = load(smollm2_path, min_confidence=MIN_CONFIDENCE)
    drafted = answer(engine, request, [drafter], most=7, deadline=60)
    assert drafted.ids == plain.ids
    counts = drafted.outcome.timings
    assert counts.draft_n >= 16
    assert counts.draft_n_accepted > 0.9 * counts.draft_n
    assert drafter.vocabulary is not None
    assert drafter.vocabulary.pin == host.pin(str(smollm2_path)).tokenizer  # so that ids pass unchanged


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "llama"},
    "frequency factors": {"architecture": "llama", "factors": True},
    "linear scaling": {"architecture": "llama", "scaling": "linear"},
    "own output": {"architecture": "llama", "tied": False},
    "qwen2": {"architecture": "qwen2"},
    "qwen3": {"architecture": "qwen3"},
}


@pytest.mark.drafters
@pytest.mark.model
@pytest.mark.parametrize("kind", FAMILIES)
def test_it_computes_what_libllama_computes(load: Load, host: LeasingHost, tmp_path: Path, kind: str) -> None:
    path = write_family(tmp_path / "model.gguf", **FAMILIES[kind])
    assert_close(proposal_of(load(path), PROMPT), by_libllama(path, host))


@pytest.mark.drafters
@pytest.mark.model
@pytest.mark.parametrize("quantization", ["Q4_0", "Q4_1", "Q8_0", "F16"])
def test_it_keeps_quantized_weights(load: Load, host: LeasingHost, tmp_path: Path, quantization: str) -> None:
    kind = gguf.GGMLQuantizationType[quantization]
    stored = write_family(tmp_path / "stored.gguf", stored=kind)
    exact = write_family(tmp_path / "exact.gguf", rounded=kind)
    drafter = load(stored)
    assert_close(proposal_of(drafter, PROMPT), by_libllama(exact, host))
    footprint = drafter.footprint(host, fake_pin(), EngineOptions(n_ctx=512))
    if quantization != "F16":  # a CPU holds half precision as float32
        assert footprint.weights < stored.stat().st_size


def by_libllama(path: Path, host: LeasingHost) -> Proposal:
    drafter = LlamaDrafter({"model": str(path), "min_confidence": 0, "cache_type_k": "f32", "cache_type_v": "f32"})
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=512))
    try:
        return proposal_of(drafter, PROMPT)
    finally:
        drafter.unload()


def assert_close(found: Proposal, expected: Proposal) -> None:
    assert found.tokens == expected.tokens
    assert found.confidence == pytest.approx(expected.confidence, rel=0.02)


@pytest.mark.drafters
def test_rejections_and_other_sessions_leave_no_trace_in_its_guesses(small: MLXDrafter) -> None:
    with closing(small.open(fake_pin(), PROMPT)) as session:
        session.propose(6)
        session.commit([70, 71])
        session.propose(3)
        session.rollback()
        session.commit([72])
        proposal_of(small, [5, 6, 7])
        session.commit([73])
        worn = session.propose(6)
    proposal_of(small, [5])  # nothing to reuse is left
    fresh = proposal_of(small, [*PROMPT, 70, 71, 72, 73])
    assert worn.tokens == fresh.tokens
    assert worn.confidence == pytest.approx(fresh.confidence, rel=1e-3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """The tiny model as an MLX folder, with a tokenizer.json of bytes."""
    from pilotfish.plugins.drafters._mlx_gguf import load_gguf

    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-5,
        "rope_traditional": True,
        "max_position_embeddings": 512,
    }
    return write_folder(tmp_path_factory.mktemp("folder"), load_gguf(tiny, mlx_core().float32), config)


def write_folder(path: Path, model: Any, config: dict[str, Any]) -> Path:
    from mlx.utils import tree_flatten
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    mlx_core().save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (path / "config.json").write_text(json.dumps({"vocab_size": N_VOCAB, **config}))
    letters = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def mlx_core() -> Any:
    import mlx.core

    return mlx.core


@pytest.mark.drafters
def test_a_folder_drafts_like_the_gguf_of_the_same_model(
    load: Load, host: LeasingHost, folder: Path, small: MLXDrafter
) -> None:
    drafter = load(folder)
    assert_close(proposal_of(drafter, PROMPT), proposal_of(small, PROMPT))
    assert drafter.vocabulary is not None
    assert drafter.vocabulary.piece(drafter.vocabulary.encode("A")[0]) == b"A"
    options = EngineOptions(n_ctx=512)
    in_folder, in_file = (d.footprint(host, fake_pin(), options) for d in (drafter, small))
    assert in_folder.cache == in_file.cache
    assert in_folder.weights == pytest.approx(in_file.weights, rel=0.01)


@pytest.mark.drafters
def test_the_footprint_covers_what_mlx_takes(host: LeasingHost, tmp_path: Path) -> None:
    path = write_family(tmp_path / "model.gguf", layers=4, context=1024)
    drafter = MLXDrafter({"model": str(path), "min_confidence": 0})
    footprint = drafter.footprint(host, fake_pin(), EngineOptions(n_ctx=1024))
    mx = mlx_core()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=1024))
    loaded = mx.get_active_memory() - before
    proposal_of(drafter, [60 + i % 100 for i in range(1000)])
    assert loaded <= 1.05 * footprint.weights + 2**20
    assert mx.get_peak_memory() - before <= footprint.total
    drafter.unload()
    assert mx.get_active_memory() - before < 2**20


@pytest.mark.drafters
def test_a_cache_that_cannot_be_trimmed_is_refused_by_name(load: Load, tmp_path: Path) -> None:
    from mlx_lm.models import mamba

    config = {
        "model_type": "mamba",
        "hidden_size": 32,
        "intermediate_size": 64,
        "state_size": 8,
        "num_hidden_layers": 1,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
    }
    model = mamba.Model(mamba.ModelArgs.from_dict({"vocab_size": N_VOCAB, **config}))
    with pytest.raises(EngineError, match=r"cannot draft: its cache \(ArraysCache\) cannot be trimmed"):
        load(write_folder(tmp_path, model, config))


@pytest.mark.drafters
def test_a_window_is_refused_unless_the_context_stays_within_it(load: Load, tmp_path: Path) -> None:
    from mlx_lm.models import llama

    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "rms_norm_eps": 1e-5,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 64,
    }
    model = llama.Model(llama.ModelArgs.from_dict({"vocab_size": N_VOCAB, **config}))
    folder = write_folder(tmp_path, model, config)
    with pytest.raises(EngineError, match=r"RotatingKVCache.*within 512 tokens.*drafters.mlx.context"):
        load(folder)
    assert len(proposal_of(load(folder, context=63), PROMPT)) > 0


@pytest.mark.drafters
@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"architecture": "gemma"}, "cannot build the architecture 'gemma'.*mlx_lm.convert"),
        ({"scaling": "yarn"}, "cannot build the rope scaling 'yarn'"),
    ],
)
def test_a_gguf_it_cannot_build_is_refused_with_a_way_out(
    load: Load, tmp_path: Path, made: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        load(write_family(tmp_path / "model.gguf", **made))


@pytest.mark.drafters
def test_a_folder_without_a_config_is_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(BrokenModel, match=r"config\.json cannot be read"):
        MLXDrafter({"model": str(tmp_path)}).footprint(LeasingHost(tmp_path), fake_pin(), EngineOptions())


@pytest.mark.drafters
def test_after_unloading_an_open_session_fails_cleanly_and_loading_again_works(host: LeasingHost, tiny: Path) -> None:
    drafter = MLXDrafter({"model": str(tiny), "min_confidence": 0})
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=256))
    session = drafter.open(fake_pin(), [5, 6, 7])
    before = session.propose(3)
    drafter.unload()
    drafter.unload()
    assert drafter.vocabulary is None
    session.commit([9])
    with pytest.raises(EngineError, match="unloaded"):
        session.propose(3)
    with pytest.raises(EngineError, match="not loaded"):
        drafter.open(fake_pin(), [5])
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=256))
    assert proposal_of(drafter, [5, 6, 7], 3) == before
    drafter.unload()


@pytest.mark.drafters
def test_a_gpu_that_is_not_there_is_refused(load: Load, tiny: Path) -> None:
    if mlx_core().is_available(mlx_core().gpu):
        assert len(proposal_of(load(tiny, device="gpu"), PROMPT)) > 0
    else:
        with pytest.raises(EngineError, match="sees no GPU"):
            load(tiny, device="gpu")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "drafters.mlx.model: expected an MLX folder"),
        ({"model": "x", "min_confidence": 2}, "drafters.mlx.min_confidence"),
        ({"model": "x", "device": "tpu"}, "drafters.mlx.device: expected one of"),
        ({"model": "x", "context": -1}, "drafters.mlx.context"),
    ],
)
def test_a_wrong_table_is_refused_with_the_keys_path(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MLXDrafter(table)


def test_without_mlx_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_mlx_device", "_mlx_model"):
        monkeypatch.setitem(sys.modules, f"pilotfish.plugins.drafters.{name}", None)
    drafter = MLXDrafter({"model": str(tmp_path)})
    for call in (drafter.footprint, drafter.load):
        with pytest.raises(EngineError, match=r"pip install 'pilotfish\[mlx\]'"):
            call(LeasingHost(tmp_path), fake_pin(), EngineOptions())


@pytest.mark.parametrize("name", ["mlx", "tinygrad"])
def test_registering_it_imports_no_engine(name: str) -> None:
    program = (
        f"import sys, pilotfish.plugins.drafters.{name} as module\n"
        "module.pilotfish_register_drafters(lambda name, factory: factory({'model': 'x'}))\n"
        "sys.exit(str({'mlx', 'mlx_lm', 'tinygrad', 'transformers', 'llama_cpp'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "set()"
