"""What the tensors and the config.json of an MLX model say about it, for lists and pins."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.tensor_layers import COMPANIONS, TensorLayers
from pilotfish.manifests.tensor_words import number_in


@dataclass(frozen=True, slots=True)
class MLXFacts:
    """Empty strings and zeros where the files say nothing. The bundled drafter does not count."""

    architecture: str = ""
    quantization: str = ""  # Ollama's name, or the type of most weights: BF16
    parameter_count: int = 0
    context_length: int = 0  # tokens


def describe_tensors(layers: TensorLayers) -> MLXFacts:
    """Look at a model's headers and its config.json. Raises BrokenModel for a config.json that is broken."""
    config = layers.json("config.json") if layers.file("config.json") else {}
    architecture = config.get("model_type")
    return MLXFacts(
        architecture if isinstance(architecture, str) else "",
        _quantization(layers),
        sum(_elements(layers, name) for name in layers.names if not _is_companion(layers, name)),
        number_in(config, "max_position_embeddings"),
    )


def _quantization(layers: TensorLayers) -> str:
    try:
        kind = layers.quantization
    except BrokenModel:  # a tensor's own trouble, which whoever loads it names
        return ""
    if kind is not None:
        return kind.ollama_type or kind.title
    counts = Counter[str]()
    for name in layers.names:
        counts[layers.dtype(name)] += math.prod(layers.shape(name))
    return counts.most_common(1)[0][0] if counts else ""


def _elements(layers: TensorLayers, name: str) -> int:
    """How many weights a tensor has, unpacked."""
    count = math.prod(layers.shape(name))
    if f"{name}.scale" not in layers:
        return count
    try:
        kind = layers.quantization_of(name)
    except BrokenModel:
        return count
    return count * 32 // kind.bits if kind else count


def _is_companion(layers: TensorLayers, name: str) -> bool:
    return any(name.endswith(ending) and name.removesuffix(ending) in layers for ending in COMPANIONS)
