"""MLX models of the store as drafters: by name, and those that a model brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.mlx_models.random_mlx import random_weights
from pilotfish.daemon.lab.mlx_models.weight_layers import weight_layers
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, SamplingParams, TargetPin
from pilotfish.manifests.manifest import DRAFT_FOLDER, DRAFT_PREFIX
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.pins import pin_model
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_writer import add_json, write_tensor_model
from pilotfish.plugins.drafters.mlx import MLXDrafter
from pilotfish.plugins.verifiers.mlx import MLXVerifier
from tests.fakes.session import answer
from tests.plugins.drafters.leasing_host import LeasingHost
from tests.plugins.verifiers.tiny_mlx import PLAIN, tokenizer_json, write_tiny

pytestmark = pytest.mark.drafters

PROMPT = tuple(b"one two three one two three")
OPTIONS = EngineOptions(n_ctx=256)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "models")


def bundle(store: Store, name: str, prefix: str = "", architecture: str = "LlamaForCausalLM") -> TargetPin:
    """A model with itself as its drafter; `prefix` comes before the names of the drafter's tensors."""
    layers = weight_layers(store.root, random_weights(PLAIN, 5))
    named = ((prefix + key, array) for key, array in random_weights(PLAIN, 5))
    layers += weight_layers(store.root, named, prefix=DRAFT_PREFIX)
    layers += [add_json(store.root, path, PLAIN) for path in ("config.json", f"{DRAFT_FOLDER}config.json")]
    layers.append(add_json(store.root, "tokenizer.json", tokenizer_json()))
    write_tensor_model(
        store.root, ModelName.parse(name), layers, family="llama", file_type="", draft_architecture=architecture
    )
    return pin_model(store, name)


def drafter_of(store: Store, pin: TargetPin, tmp_path: Path, **table: object) -> tuple[MLXDrafter, LeasingHost]:
    path = store.manifests / store.manifest(pin.name).name.path
    return MLXDrafter({"model": str(path), "min_confidence": 0, **table}), LeasingHost(tmp_path)


@pytest.mark.parametrize("bundled", [True, False])
def test_it_drafts_for_the_model_that_it_equals(store: Store, tmp_path: Path, bundled: bool) -> None:
    pin = bundle(store, "twins") if bundled else write_tiny(store, "alone")
    drafter, host = drafter_of(store, pin, tmp_path, bundled=bundled)
    footprint = drafter.footprint(host, pin, OPTIONS)
    engine = MLXVerifier().load(pin, None, OPTIONS)
    drafter.load(host, pin, OPTIONS)
    try:
        request = GenerationRequest(PROMPT, SamplingParams(temperature=0, ignore_eos=True), n_predict=24)
        drafted = answer(engine, request, [drafter])
        assert drafted.ids == answer(engine, request).ids
        counts = drafted.outcome.timings
        assert counts.draft_n_accepted > 0.9 * counts.draft_n > 0
        assert drafter.vocabulary is not None
        assert drafter.vocabulary.pin == pin.tokenizer
        assert footprint.weights == 4 * sum(array.size for _, array in random_weights(PLAIN, 5))
    finally:
        drafter.unload()
        engine.close()


def test_what_needs_activations_or_is_not_there_is_refused_with_the_evidence(store: Store, tmp_path: Path) -> None:
    for pin, why in (
        (bundle(store, "mtp", prefix="mtp."), r"cannot draft by itself.*it needs the model.s activations, by mtp\."),
        (bundle(store, "eagle", architecture="EagleModel"), "by its architecture"),
        (write_tiny(store, "bare"), "brings no drafter along"),
    ):
        drafter, host = drafter_of(store, pin, tmp_path, bundled=True)
        with pytest.raises(EngineError, match=why):
            drafter.load(host, pin, OPTIONS)
