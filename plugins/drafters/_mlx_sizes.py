"""How much memory a model takes under MLX, from its metadata, without MLX."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.manifest import json_object
from pilotfish.manifests.safetensors import BITS
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_words import number_in
from pilotfish.plugins.drafters._gguf_shape import ModelShape

QUANTIZED = ("Q4_0", "Q4_1", "Q8_0")  # what MLX keeps of a GGUF as it is
FLOATS = ("F16", "BF16", "F32")
BLOCK = 128  # tokens of a forward that only fills the cache
LAST = 16  # at most so many tokens in the last forward, which computes a row of logits for each of them


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the weights, and what counts what is computed: elements of one token's cells, heads, ids."""

    weights: int
    cell: int
    heads: int
    n_vocab: int
    trained: int  # tokens of context; 0 when nothing is said

    def cache(self, n_ctx: int, float_size: int) -> int:
        """Cells and working buffers in bytes: attention scores are made once and their softmax beside them, where they
        are not fused away, and the logits of the last forward twice.
        """
        work = 2 * (self.heads + 1) * BLOCK * n_ctx + 2 * LAST * self.n_vocab
        return (self.cell * n_ctx + work) * float_size


def sizes_of_gguf(shape: ModelShape, float_size: int) -> Sizes:
    """Raises BrokenModel."""
    weights = sum(
        tensor.size if tensor.type in QUANTIZED else tensor.elements * float_size for tensor in shape.tensors.values()
    )
    heads = shape.number("attention.head_count", 1)
    return Sizes(weights, shape.cache_elements(1), heads, shape.n_vocab, shape.number("context_length", 0))


def sizes_of_folder(folder: Path) -> Sizes:
    """Of an MLX folder. Raises BrokenModel."""
    return _sizes(_read_config(folder), sum(path.stat().st_size for path in folder.glob("model*.safetensors")))


def sizes_of_layers(layers: TensorLayers, float_size: int) -> Sizes:
    """Of a model in the store. Raises BrokenModel."""
    config = layers.json("config.json")
    weights = sum(math.prod(layers.shape(name)) * _width(layers.dtype(name), float_size) for name in layers.names)
    return _sizes(config, weights)


def _width(kind: str, float_size: int) -> int:
    """Bytes of a number of this type as it is held."""
    return float_size if kind in FLOATS else BITS[kind] // 8


def _sizes(config: Mapping[str, Any], weights: int) -> Sizes:
    """What config.json leaves out is taken from what it says, as the models do."""
    heads = number_in(config, "num_attention_heads", 1)
    head = number_in(config, "head_dim", number_in(config, "hidden_size") // heads)
    return Sizes(
        weights=weights,
        cell=2 * number_in(config, "num_hidden_layers") * number_in(config, "num_key_value_heads", heads) * head,
        heads=heads,
        n_vocab=number_in(config, "vocab_size"),
        trained=number_in(config, "max_position_embeddings"),
    )


def _read_config(folder: Path) -> Mapping[str, Any]:
    path, remedy = folder / "config.json", "give the folder of an MLX model"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BrokenModel(f"{path} cannot be read ({error}); {remedy}") from error
    return json_object(data, str(path), remedy)
