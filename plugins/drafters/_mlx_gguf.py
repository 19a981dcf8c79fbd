"""An mlx-lm model from a GGUF file.

`mx.load` keeps Q4_0, Q4_1 and Q8_0 as MLX's own quantized arrays and turns everything else into floats. What is left to
do is to name the tensors as mlx-lm does, and to turn keys and queries as the file means it: for llama a GGUF holds the
rows of both in another order, so that neighbours are turned together instead of halves. MLX can turn either way
(`traditional`), so the rows stay as they are.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.mlx_names import mlx_name
from pilotfish.plugins.drafters._gguf_shape import ModelShape, read_shape

GROUP = 32  # weights that share a scale in every quantization that mx.load keeps


@dataclass(frozen=True, slots=True)
class Family:
    """How one GGUF architecture is built: mlx-lm's module, and whether neighbours are turned together."""

    module: str
    neighbours: bool = False


FAMILIES = {"llama": Family("llama", neighbours=True), "qwen2": Family("qwen2"), "qwen3": Family("qwen3")}

FACTORS = "rope_freqs.weight"  # by how much each frequency of a longer context is lowered (Llama 3)


def check(shape: ModelShape) -> None:
    """Raises EngineError for a model that cannot be built here, saying what can."""
    rope = str(shape.values.get(f"{shape.architecture}.rope.scaling.type", "none"))
    what = ""
    if shape.architecture not in FAMILIES:
        what = f"the architecture {shape.architecture!r} from a GGUF (it can {', '.join(sorted(FAMILIES))})"
    elif rope not in ("none", "linear"):
        what = f"the rope scaling {rope!r} from a GGUF"
    elif shape.number("expert_count", 0):
        what = "a mixture of experts from a GGUF"
    if what:
        raise EngineError(
            f"{shape.path}: the mlx drafter cannot build {what}; convert the model with mlx_lm.convert and give its "
            "folder as drafters.mlx.model, or use drafters.llama"
        )


def load_gguf(path: Path, floats: Any) -> Any:
    """The model in `path`, evaluated. Plain weights are held as `floats`. Raises EngineError or BrokenModel."""
    shape = read_shape(path)
    check(shape)
    arrays: Any = mx.load(str(path))
    factors = arrays.pop(FACTORS, None)
    weights = {_renamed(name, path): _typed(name, array, arrays, floats) for name, array in arrays.items()}
    model = _empty(shape, tied="lm_head.weight" not in weights)
    _quantize(model, weights)
    model.load_weights(list(weights.items()))
    _set_rope(model, shape, factors)
    mx.eval(model.parameters())
    return model


def _renamed(name: str, path: Path) -> str:
    renamed = mlx_name(name)
    if not renamed:
        raise EngineError(f"{path}: the mlx drafter has no place for the tensor {name}; use drafters.llama")
    return renamed


def _typed(name: str, array: Any, arrays: Any, floats: Any) -> Any:
    """Quantized arrays as they are, the rest as `floats`."""
    module, _, part = name.rpartition(".")
    quantized = part in ("scales", "biases") or (part == "weight" and f"{module}.scales" in arrays)
    return array if quantized else array.astype(floats)


def _empty(shape: ModelShape, tied: bool) -> Any:
    module = importlib.import_module(f"mlx_lm.models.{FAMILIES[shape.architecture].module}")
    heads = shape.number("attention.head_count")
    values = {
        "model_type": shape.architecture,
        "hidden_size": shape.number("embedding_length"),
        "num_hidden_layers": shape.number("block_count"),
        "intermediate_size": shape.number("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": shape.number("attention.head_count_kv", heads),
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.real("attention.layer_norm_rms_epsilon", 1e-5),
        "vocab_size": shape.n_vocab,
        "rope_theta": shape.real("rope.freq_base", 10000.0),
        "max_position_embeddings": shape.number("context_length"),
        "tie_word_embeddings": tied,
    }
    return module.Model(module.ModelArgs.from_dict(values))


def _quantize(model: Any, weights: dict[str, Any]) -> None:
    """Make room for quantized weights wherever there are scales."""

    def setting(path: str, _module: Any) -> dict[str, int] | bool:
        scales = weights.get(f"{path}.scales")
        if scales is None:
            return False
        return {"group_size": GROUP, "bits": weights[f"{path}.weight"].shape[-1] * 32 // (scales.shape[-1] * GROUP)}

    nn.quantize(model, class_predicate=setting)


def _set_rope(model: Any, shape: ModelShape, factors: Any) -> None:
    neighbours = FAMILIES[shape.architecture].neighbours
    size = shape.number("rope.dimension_count", shape.head_dim)
    base = shape.real("rope.freq_base", 10000.0)
    if factors is not None:
        rope: Any = FactoredRope(size, neighbours, base, factors)
    else:
        rope = nn.RoPE(size, traditional=neighbours, base=base, scale=1 / shape.real("rope.scaling.factor", 1.0))
    for layer in model.layers:
        layer.self_attn.rope = rope


class FactoredRope:
    """Rotary positions whose frequencies are each divided by a factor of the file's."""

    def __init__(self, size: int, neighbours: bool, base: float, factors: Any) -> None:
        self._size, self._neighbours = size, neighbours
        self._periods = base ** (mx.arange(0, size, 2, dtype=mx.float32) / size) * factors.astype(mx.float32)
        mx.eval(self._periods)

    def __call__(self, x: Any, offset: int = 0) -> Any:
        return mx.fast.rope(
            x, self._size, traditional=self._neighbours, base=None, scale=1.0, offset=offset, freqs=self._periods
        )
