"""SmolLM2's GGUF as an MLX model: the same weights, the same ids for text, rows that differ by rounding only."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilotfish.daemon.lab.mlx_models.gguf_as_mlx import add_gguf_as_mlx
from pilotfish.daemon.lab.mlx_models.random_mlx import LLAMA, add_random_model
from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_folder import read_folder
from pilotfish.manifests.tensor_import import import_folder
from pilotfish.manifests.tensor_layers import TensorLayers
from tests.manifests.builders import smollm2_path, tiny_gguf

FOUR_BITS = Quantization("affine", 64, 4)
PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def smollm2(store: Store) -> TensorLayers:
    return TensorLayers.of(add_gguf_as_mlx(store, "smollm2:mlx", smollm2_path()), store)


def built(layers: TensorLayers) -> Any:
    """The model that mlx-lm makes of these layers."""
    mx, nn = importlib.import_module("mlx.core"), importlib.import_module("mlx.nn")
    config = layers.json("config.json")
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    if (how := layers.quantization) is not None:
        nn.quantize(model, group_size=how.group_size, bits=how.bits, mode=how.mode)
    names = layers.mlx_names()
    weights = [
        (names[name], array) for path in layers.paths() for name, array in mx.load(str(path), "safetensors").items()
    ]
    model.load_weights(weights)
    return model


def last_row(model: Any) -> np.ndarray[Any, Any]:
    mx = importlib.import_module("mlx.core")
    return np.array(model(mx.array([PROMPT]))[0, -1].astype(mx.float32))


def test_every_tensor_is_there_under_its_name_in_float16(smollm2: TensorLayers) -> None:
    config = smollm2.json("config.json")
    assert smollm2.quantization is None
    assert smollm2.shape("model.embed_tokens.weight") == (config["vocab_size"], config["hidden_size"])
    assert smollm2.shape("model.layers.29.self_attn.k_proj.weight") == (192, 576)
    assert {smollm2.dtype(name) for name in smollm2.names} == {"F16"}
    assert len(smollm2.names) == 30 * 9 + 2
    smollm2.verify()


def test_an_architecture_that_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="only llama, qwen2, qwen3"):
        add_gguf_as_mlx(store, "m", tiny_gguf(tmp_path / "m.gguf", architecture="mamba"))


@pytest.mark.drafters
def test_its_rows_are_those_of_the_gguf_but_for_rounding(smollm2: TensorLayers) -> None:
    pytest.importorskip("mlx_lm")
    mx = importlib.import_module("mlx.core")
    gguf = importlib.import_module("pilotfish.plugins.drafters._mlx_gguf").load_gguf(smollm2_path(), mx.float32)
    ours, theirs = last_row(built(smollm2)), last_row(gguf)
    assert ours.argmax() == theirs.argmax()
    assert np.corrcoef(ours, theirs)[0, 1] > 0.9999


@pytest.mark.drafters
def test_four_bits_are_stored_with_their_companions_and_said(smollm2: TensorLayers, store: Store) -> None:
    pytest.importorskip("mlx_lm")
    layers = TensorLayers.of(add_gguf_as_mlx(store, "smollm2:int4", smollm2_path(), FOUR_BITS), store)
    name = "model.layers.0.mlp.down_proj.weight"
    assert (layers.dtype(name), layers.quantization_of(name)) == ("U32", FOUR_BITS)
    assert layers.mlx_names()[f"{name}.bias"] == "model.layers.0.mlp.down_proj.biases"
    assert layers.quantization_of("model.norm.weight") is None
    assert (
        np.corrcoef(last_row(built(layers)), last_row(built(smollm2)))[0, 1] > 0.7
    )  # their own rounding, on top of that of the file


@pytest.mark.drafters
def test_a_folder_of_mlx_lms_is_imported_with_its_quantization(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm")
    utils = importlib.import_module("mlx_lm.utils")
    model = built(TensorLayers.of(add_random_model(store, "random:plain"), store))
    config = {**LLAMA, "vocab_size": 49152}
    model, config = utils.quantize_model(model, config, group_size=32, bits=8)
    utils.save_model(tmp_path, model)
    utils.save_config(config, tmp_path / "config.json")
    import_folder(store.root, ModelName.parse("imported"), read_folder(tmp_path))
    layers = TensorLayers.of(store.manifest("imported"), store)
    assert layers.quantization == layers.quantization_of("model.embed_tokens.weight") == Quantization("affine", 32, 8)
    np.testing.assert_array_equal(last_row(built(layers)), last_row(model))


@pytest.mark.drafters
def test_a_random_model_is_the_same_each_time_and_may_bundle_a_drafter(store: Store) -> None:
    pytest.importorskip("mlx_lm")
    first = add_random_model(store, "random", draft={**LLAMA, "num_hidden_layers": 1})
    again = add_random_model(store, "random:again")
    layers = TensorLayers.of(first, store)
    assert np.isfinite(last_row(built(layers))).all()
    assert {layer.digest for layer in again.layers} < {layer.digest for layer in first.layers}
    assert layers.draft is not None
    assert layers.draft.json("config.json")["num_hidden_layers"] == 1
    assert "model.layers.0.mlp.up_proj.weight" in layers.draft.names
