"""MLX models on mlx-lm: rows with drafts are those of plain decoding, whatever its caches are, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, accepted, ready
from pilotfish.daemon.lab.mlx_models.gguf_as_mlx import add_gguf_as_mlx
from pilotfish.hooks.errors import BrokenModel, EngineError, UnsupportedRequest
from pilotfish.hooks.protocols import CertifiableVerifier, RefusesModels, TargetEngine
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, SamplingParams, TargetPin
from pilotfish.lab.conformance import VerifierConformance
from pilotfish.lab.fakes import NoisyDrafter, fake_pin
from pilotfish.manifests.pins import pin_model
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.store import Store
from pilotfish.plugins.drafters.suffix import SuffixDrafter
from pilotfish.plugins.verifiers.mlx import MLXVerifier
from tests.fakes.session import answer
from tests.manifests.builders import smollm2_path
from tests.plugins.verifiers import tiny_mlx as tiny
from tests.plugins.verifiers.courses import course, ids, is_the_same_beside_another

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.drafters

BLOCK = 32
SEEDED = SamplingParams(
    temperature=4, top_p=0.99, min_p=0, seed=3, ignore_eos=True, repeat_penalty=1.2, logit_bias=((7, 1.5),)
)
PLENTY = 1 << 40
MODELS: dict[str, tuple[dict[str, Any], Quantization | None]] = {
    "plain": (tiny.PLAIN, None),
    "four bits": (tiny.PLAIN, Quantization("affine", 32, 4)),
    "nvfp4": (tiny.PLAIN, Quantization("nvfp4", 16, 4)),
    "mxfp8": (tiny.PLAIN, Quantization("mxfp8", 32, 8)),
    "windows": (tiny.WINDOWED, None),
    "hybrid": (tiny.HYBRID, None),
    "recurrent": (tiny.RECURRENT, None),
    "both": (tiny.WINDOWS_AND_STATES, None),
}
CUT = ("plain", "four bits", "windows", "hybrid", "recurrent")  # whose rejected tokens are taken back
PinOf = Callable[[str], TargetPin]
EngineFor = Callable[..., "CellEngine"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def pinned(store: Store) -> PinOf:
    known: dict[str, TargetPin] = {}

    def pinned(kind: str) -> TargetPin:
        if kind not in known:
            known[kind] = tiny.write_tiny(store, kind.replace(" ", "-"), *MODELS[kind])
        return known[kind]

    return pinned


@pytest.fixture(scope="module")
def engine_for(pinned: PinOf) -> Iterator[EngineFor]:
    """Of each kind one, with 512 tokens and two slots."""
    loaded: dict[str, CellEngine] = {}

    def engine_for(kind: str) -> CellEngine:
        if kind not in loaded:
            loaded[kind] = MLXVerifier().load(pinned(kind), None, EngineOptions(n_ctx=512, slots=2, batch_size=BLOCK))
        return loaded[kind]

    yield engine_for
    for engine in loaded.values():
        engine.close()


@pytest.fixture(scope="module")
def smollm2(store: Store) -> Iterator[CellEngine]:
    """The packaged model with 4 bits, in widths that the check at load may have no time for."""
    add_gguf_as_mlx(store, "smollm2:mlx", smollm2_path(), Quantization("affine", 64, 4))
    lane = Lane("given", (1, 2, 4), EngineSetting(engine="mlx"))
    engine = MLXVerifier().load(pin_model(store, "smollm2:mlx"), lane, EngineOptions(n_ctx=256, batch_size=BLOCK))
    yield engine
    engine.close()


def random_ids(n: int, seed: int = 0) -> list[int]:
    return [int(id) for id in np.random.default_rng(seed).integers(3, 250, n)]


def wrong(right: list[int]) -> list[int]:
    return [(id + 1) % tiny.N_VOCAB for id in right]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("kind", CUT)
def test_rows_are_plains_however_right_the_drafts_are(
    engine_for: EngineFor, kind: str, sampling: SamplingParams
) -> None:
    engine, prompt = engine_for(kind), random_ids(40)
    assert engine.lane.max_width > 1, engine.lane.reason
    plain, _ = course(engine, prompt, 40, sampling=sampling)
    for draft in (ids(plain), wrong(ids(plain))):
        assert course(engine, prompt, 40, draft, seed=4, sampling=sampling)[0] == plain
    assert sampling is GREEDY or len(set(ids(plain))) > 15


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("kind", ["four bits", "windows", "recurrent"])
def test_no_drafter_changes_a_token(engine_for: EngineFor, kind: str, sampling: SamplingParams) -> None:
    engine, prompt = engine_for(kind), random_ids(12) * 4
    request = GenerationRequest(tuple(prompt), replace(sampling, ignore_eos=True), n_predict=40)
    plain = answer(engine, request)
    whole = [*prompt, *plain.ids]
    oracle = NoisyDrafter(lambda history: whole[min(len(history), len(whole) - 1)], wrong=0.3, n_vocab=tiny.N_VOCAB)
    for drafter in (SuffixDrafter(), oracle):
        drafted = answer(engine, request, [drafter])
        assert drafted.ids == plain.ids
        assert drafted.outcome.timings.draft_n > 0


@pytest.mark.parametrize("n", [tiny.WINDOW - 8, 280])
def test_the_edge_of_windows_and_the_end_of_their_ring_are_crossed(engine_for: EngineFor, n: int) -> None:
    engine, prompt = engine_for("windows"), random_ids(n)
    memory = engine._slots[0].context.memory
    assert (memory.window, memory.ring < n + 40 or n < 100) == (tiny.WINDOW, True)
    plain, _ = course(engine, prompt, 40, sampling=SEEDED)
    assert course(engine, prompt, 40, ids(plain), seed=1, sampling=SEEDED)[0] == plain


def test_a_window_beyond_the_context_is_cut_like_any_other_memory(store: Store) -> None:
    pin = tiny.write_tiny(store, "far", {**tiny.WINDOWED, "sliding_window": 4096})
    engine = MLXVerifier().load(pin, None, EngineOptions(n_ctx=256, batch_size=BLOCK))
    memory, prompt = engine._slots[0].context.memory, random_ids(60)
    plain, _ = course(engine, prompt, 30)
    assert (memory.ring, engine.lane.max_width > 1) == (0, True)
    assert course(engine, prompt, 30, ids(plain), seed=1)[0] == plain
    assert course(engine, random_ids(60)[:50], 4, cache_prompt=True)[1] == 49
    engine.close()


def test_windows_hold_what_a_cache_of_every_token_would(pinned: PinOf, engine_for: EngineFor) -> None:
    """The same window over cells that stand where mlx-lm's own cache has them: equal but for rounding."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    engine, prompt = engine_for("windows"), random_ids(300)
    context = engine._slots[0].context
    context.clear()
    for at in range(0, 288, BLOCK):
        context.feed(prompt[at : at + BLOCK])
    context.forward(prompt[288:296], 8)
    ours = np.array([context.row(i) for i in range(8)])
    model = context._model  # type: ignore[attr-defined]
    theirs = np.array(model(mx.array([prompt[:296]]), cache=make_prompt_cache(model))[0, 288:])
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    engine._slots[0].clear()


@pytest.mark.parametrize("kind", ["windows", "hybrid"])
def test_a_rejection_an_abort_and_a_retry_leave_a_cache_like_a_fresh_one(engine_for: EngineFor, kind: str) -> None:
    engine, prompt = engine_for(kind), random_ids(100)
    fresh, _ = course(engine, prompt, 16)
    right = ids(fresh)
    with ready(engine, prompt, cache_prompt=False) as session:
        for draft in (wrong(right)[:7], right[:3] + wrong(right)[3:7]):
            session.verify(draft)
            session.rollback()
        rows = session.verify(right[:2] + wrong(right)[2:6])
        session.commit(accepted(rows, right[:2] + wrong(right)[2:6]))
        session.verify(wrong(right)[:5])  # an abort: closed with a forward outstanding
    retried, cached = course(engine, prompt, 16, right, seed=2, cache_prompt=True)
    assert retried == fresh
    assert cached >= 3 * BLOCK


@pytest.mark.parametrize("kind", ["plain", "windows", "hybrid"])
def test_a_conversation_is_put_aside_and_comes_back_with_every_bit(engine_for: EngineFor, kind: str) -> None:
    engine, prompt = engine_for(kind), random_ids(70)
    engine.remember(lambda held: PLENTY)
    answer = ids(course(engine, prompt, 10)[0])
    later = [*prompt, *answer[:-1], 9, 8]
    fresh, _ = course(engine, later, 12)
    course(engine, prompt, 10, answer, cache_prompt=True)
    for seed in (11, 12):
        course(engine, random_ids(40, seed), 2, cache_prompt=True)
    hits = engine.remembered.hits
    found, cached = course(engine, later, 12, cache_prompt=True)
    assert found == fresh
    assert (engine.remembered.hits, cached >= 2 * BLOCK, engine.remembered.failed) == (hits + 1, True, 0)


def test_sessions_beside_each_other_have_their_own_rows(engine_for: EngineFor) -> None:
    engine = engine_for("plain")
    assert is_the_same_beside_another(engine, random_ids(60), random_ids(30, 1))
    assert (engine.slots, engine.together(1)) == (2, 1)


def test_log_probabilities_are_those_of_the_row(engine_for: EngineFor) -> None:
    with ready(engine_for("plain"), random_ids(20)) as session:
        rows = session.verify([])
        token = rows.pick(0)
        found = rows.logprobs(0, token, 3)
    assert found.top[0].id == token == found.id
    assert found.top[0].logprob >= found.top[1].logprob >= found.top[2].logprob


def test_where_windows_and_states_are_mixed_it_decodes_plainly_and_says_why(engine_for: EngineFor) -> None:
    engine = engine_for("both")
    assert engine.lane.widths == (1,)
    assert "windows and running states" in engine.lane.reason
    plain, _ = course(engine, random_ids(40), 8)
    assert course(engine, random_ids(40), 8)[0] == plain


@pytest.mark.parametrize("other", [tiny.WINDOW + 1, 4096], ids=["both rings are smaller", "one holds the context"])
def test_where_windows_have_several_sizes_it_decodes_plainly_and_says_why(
    monkeypatch: pytest.MonkeyPatch, pinned: PinOf, other: int
) -> None:
    from mlx_lm.models import llama
    from mlx_lm.models.cache import RotatingKVCache

    sizes = (tiny.WINDOW, other)
    monkeypatch.setattr(llama.Model, "make_cache", lambda model: [RotatingKVCache(size) for size in sizes])
    engine = MLXVerifier().load(pinned("windows"), None, EngineOptions(n_ctx=512, batch_size=BLOCK))
    assert engine.lane.widths == (1,)
    assert "windows of several sizes" in engine.lane.reason
    assert course(engine, random_ids(400), 4, cache_prompt=True)[1] == 0
    assert course(engine, random_ids(400), 4, cache_prompt=True)[1] == 0, "what is kept would depend on drafts"
    engine.close()


def test_a_cache_of_an_unknown_class_is_named(monkeypatch: pytest.MonkeyPatch, pinned: PinOf) -> None:
    from mlx_lm.models import llama
    from mlx_lm.models.cache import ChunkedKVCache

    monkeypatch.setattr(llama.Model, "make_cache", lambda model: [ChunkedKVCache(64) for _ in model.layers])
    engine = MLXVerifier().load(pinned("plain"), None, EngineOptions(n_ctx=256))
    assert engine.lane.widths == (1,)
    assert "ChunkedKVCache" in engine.lane.reason
    engine.close()


@pytest.mark.parametrize(
    "setting",
    [EngineSetting(flash_attention=False, engine="mlx"), EngineSetting("q8_0", "q8_0", engine="mlx")],
    ids=["products", "cells of 8 bits"],
)
def test_a_probe_reaches_every_setting_that_is_a_candidate(pinned: PinOf, setting: EngineSetting) -> None:
    probe = MLXVerifier().probe(pinned("plain"), setting, 8, EngineOptions(n_ctx=256))
    try:
        probe.feed(random_ids(40))
        one_by_one = [probe.rows([token], 1)[0] for token in (5, 6, 7, 8)]
        assert probe.cut(40)
        assert probe.rows([5, 6, 7, 8], 4) == one_by_one
        assert probe.obstacle == ""
    finally:
        probe.close()


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp8"])
def test_number_formats_of_floats_are_computed(engine_for: EngineFor, kind: str) -> None:
    engine = engine_for(kind)
    plain, _ = course(engine, random_ids(20), 12)
    assert course(engine, random_ids(20), 12, ids(plain))[0] == plain


def test_texts_have_the_ids_of_the_models_own_tokenizer(engine_for: EngineFor) -> None:
    engine = engine_for("plain")
    tokens = engine.tokenizer.encode("é</s>")
    assert tokens == [0xC3, 0xA9, tiny.END]
    assert engine.tokenizer.encode("</s>", parse_special=False) == list(b"</s>")
    assert (engine.tokenizer.decode(tokens), engine.tokenizer.piece(tiny.END)) == ("é</s>".encode(), b"")
    assert (engine.eog, engine.n_vocab, engine.tokenizer.piece(310)) == ({tiny.END}, tiny.N_VOCAB, b"")


def test_grammars_are_refused_by_name(engine_for: EngineFor) -> None:
    with pytest.raises(UnsupportedRequest, match="grammar"):
        engine_for("plain").open([5, 6], SamplingParams(grammar='root ::= "a"'))


def test_what_mlx_does_not_compute_is_refused_beforehand_and_at_load(store: Store, pinned: PinOf) -> None:
    verifier, options = MLXVerifier(), EngineOptions()
    assert isinstance(verifier, CertifiableVerifier)
    assert isinstance(verifier, RefusesModels)
    assert verifier.unfit_for(pinned("plain"), options) == ""
    odd = tiny.write_tiny(store, "odd", tiny.PLAIN, said={"model_type": "odd"})
    renamed = tiny.write_tiny(store, "renamed", tiny.PLAIN, said={"model_type": "mistral"})  # mlx-lm's llama
    assert verifier.unfit_for(renamed, options) == ""
    own = tiny.write_tiny(store, "own", tiny.PLAIN, said={"model_file": "modelling.py"})
    for pin, why in ((odd, "no model class for 'odd'"), (own, "brings code of its own"), (fake_pin(), "MLX computes")):
        assert why in verifier.unfit_for(pin, options)
        with pytest.raises(EngineError, match=why):
            verifier.load(pin, None, options)


def test_tensors_that_do_not_make_the_model_are_a_broken_model(store: Store) -> None:
    pin = tiny.write_tiny(store, "wide", tiny.PLAIN, said={"intermediate_size": 128})
    with pytest.raises(BrokenModel, match=r"wide.*do not make a llama model"):
        MLXVerifier().load(pin, None, EngineOptions())
    with pytest.raises(BrokenModel, match="changed since"):
        MLXVerifier().load(replace(pin, manifest_digest="sha256:0"), None, EngineOptions())


@pytest.mark.model
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.8, seed=5)], ids=["greedy", "seeded"])
def test_smollm2_gives_the_rows_of_plain_decoding(smollm2: CellEngine, sampling: SamplingParams) -> None:
    prompt = smollm2.tokenizer.encode("one two three four\none two three four\none two")
    assert smollm2.tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    plain, _ = course(smollm2, prompt, 10, sampling=sampling)
    assert course(smollm2, prompt, 10, ids(plain), seed=3, sampling=sampling)[0] == plain
    request = GenerationRequest(tuple(prompt), replace(sampling, ignore_eos=True), n_predict=10)
    assert answer(smollm2, request, [SuffixDrafter()]).ids == answer(smollm2, request).ids


class TestConformance(VerifierConformance):
    @pytest.fixture(params=["windows", "hybrid"])
    def engine(self, engine_for: EngineFor, request: pytest.FixtureRequest) -> TargetEngine:
        return engine_for(request.param)

    @pytest.fixture
    def prompt(self) -> list[int]:
        return random_ids(50)
