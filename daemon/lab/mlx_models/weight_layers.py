"""Weights as tensor layers of a store: plain in float16, or quantized by MLX."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.manifest import Layer
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.tensor_writer import NewTensor, add_tensors, quantized_metadata

Array = npt.NDArray[Any]


def weight_layers(
    root: Path, weights: Iterator[tuple[str, Array]], quantization: Quantization | None = None, prefix: str = ""
) -> list[Layer]:
    """Write every tensor into a blob of its own; matrices quantized where that is asked for. `prefix`: a draft's.

    Raises EngineError where MLX is asked for and not installed.
    """
    return [_layer(root, prefix + name, array, quantization) for name, array in weights]


def _layer(root: Path, name: str, array: Array, quantization: Quantization | None) -> Layer:
    half = array.astype(np.float16)
    if quantization is None or not _divides(half, quantization):
        return add_tensors(root, name, [NewTensor.of(name, half)])
    tensors = [NewTensor.of(key, part) for key, part in _quantized(name, half, quantization).items()]
    return add_tensors(root, name, tensors, quantized_metadata(quantization))


def _divides(array: Array, quantization: Quantization) -> bool:
    return array.ndim > 1 and array.shape[-1] % quantization.group_size == 0


def _quantized(name: str, array: Array, quantization: Quantization) -> Mapping[str, Array]:
    """The packed weight and its companions, by Ollama's names."""
    mx = mlx_core()
    how = {"group_size": quantization.group_size, "bits": quantization.bits, "mode": quantization.mode}
    parts = mx.quantize(mx.array(array), **how)
    return {f"{name}{ending}": np.array(part) for ending, part in zip(("", ".scale", ".bias"), parts, strict=False)}


def mlx_core() -> Any:
    """The module `mlx.core`. Raises EngineError where it is not installed."""
    try:
        return importlib.import_module("mlx.core")
    except ImportError as error:
        raise EngineError(f"MLX is not installed ({error}); install it with: pip install 'pilotfish[mlx]'") from error
