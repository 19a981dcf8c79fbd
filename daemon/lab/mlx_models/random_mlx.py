"""Small MLX models with random weights: of any architecture that mlx-lm has, with a packaged model's vocabulary."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pilotfish.daemon.lab.mlx_models.gguf_as_mlx import json_layers
from pilotfish.daemon.lab.mlx_models.weight_layers import Array, mlx_core, weight_layers
from pilotfish.daemon.lab.tiny_models.architecture import Words
from pilotfish.daemon.lab.tiny_models.vocabulary import vocabulary_of
from pilotfish.manifests.manifest import DRAFT_FOLDER, DRAFT_PREFIX, Manifest
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_writer import write_tensor_model

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def add_random_model(
    store: Store,
    name: str,
    config: Mapping[str, Any] | None = None,
    quantization: Quantization | None = None,
    *,
    seed: int = 0,
    draft: Mapping[str, Any] | None = None,
) -> Manifest:
    """Write a model with this config.json (`LLAMA` unless given), SmolLM2's vocabulary and random weights into a store.

    `config` needs no `vocab_size`. With `draft`, a config.json too, a drafter with random weights is bundled.
    Raises EngineError without MLX and mlx-lm, and ModelNotFound without the package that has the vocabulary.
    """
    vocabulary = vocabulary_of(Words.SMOLLM2)
    own = {**(LLAMA if config is None else config), "vocab_size": vocabulary.size}
    layers = weight_layers(store.root, random_weights(own, seed), quantization)
    layers += json_layers(store.root, own, vocabulary)
    architecture = ""
    if draft is not None:
        bundled = {**draft, "vocab_size": vocabulary.size}
        architecture = bundled["architectures"][0]
        layers += weight_layers(store.root, random_weights(bundled, seed + 1), quantization, DRAFT_PREFIX)
        layers += json_layers(store.root, bundled, vocabulary, DRAFT_FOLDER)
    kind = quantization.ollama_type if quantization else ""
    write_tensor_model(
        store.root,
        ModelName.parse(name),
        layers,
        family=str(own["model_type"]),
        file_type=kind,
        draft_architecture=architecture,
    )
    return store.manifest(name)


def random_weights(config: Mapping[str, Any], seed: int) -> Iterator[tuple[str, Array]]:
    """The parameters with which mlx-lm's class begins, by name, in float32. Raises EngineError without mlx-lm."""
    mx = mlx_core()
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(dict(config)))
    parameters = importlib.import_module("mlx.utils").tree_flatten(model.parameters())
    for name, array in sorted(parameters):
        yield name, np.array(array.astype(mx.float32))
