"""How much memory a model takes under MLX, from its metadata, without MLX."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.safetensors import BITS
from pilotfish.manifests.tensor_layers import TensorLayers
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
    return _sizes(config.get("text_config", config), weights)


def _width(kind: str, float_size: int) -> int:
    """Bytes of a number of this type as it is held."""
    return float_size if kind in FLOATS else BITS[kind] // 8


def _sizes(config: Mapping[str, Any], weights: int) -> Sizes:
    """What config.json leaves out is taken from what it says, as the models do."""

    def number(key: str, default: int) -> int:
        value = config.get(key)
        return value if isinstance(value, int) and value > 0 else default

    heads = number("num_attention_heads", 1)
    head = number("head_dim", number("hidden_size", 0) // heads)
    return Sizes(
        weights=weights,
        cell=2 * number("num_hidden_layers", 0) * number("num_key_value_heads", heads) * head,
        heads=heads,
        n_vocab=number("vocab_size", 0),
        trained=number("max_position_embeddings", 0),
    )


def _read_config(folder: Path) -> Mapping[str, Any]:
    """A folder's config.json; of a model with several parts the one that writes text."""
    path = folder / "config.json"
    try:
        found = json.loads(path.read_bytes())
        config = found.get("text_config", found)
        if not isinstance(config, dict):
            raise TypeError("no table of settings")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise BrokenModel(f"{path} cannot be read ({error}); give the folder of an MLX model") from error
    return config
