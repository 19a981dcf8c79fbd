"""An mlx-lm model from a store's tensors: its class by config.json, its weights from blobs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import _get_classes

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.manifests.quantization import Quantization, of_shapes
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.plugins._mlx.model_classes import model_config, no_such_class

MODES = ("affine", "nvfp4", "mxfp4", "mxfp8")


def build_model(layers: TensorLayers, name: str, floats: Any | None) -> Any:
    """The model, all its weights in memory. With `floats` everything that is not quantized is held as that type.

    Raises EngineError where mlx-lm has no such model or this MLX no such number format, and BrokenModel where tensors
    are missing or of another shape; both name the model.
    """
    config = model_config(layers, name)
    model = _empty(config, name)
    weights = read_weights(layers)
    try:
        if hasattr(model, "sanitize"):
            weights = model.sanitize(weights)
        _quantize(model, weights, layers, name)
        model.eval()
        model.load_weights(list(weights.items()))
        if floats is not None:
            model.set_dtype(floats)
        weights.clear()
        mx.eval(model.parameters())
    except (EngineError, BrokenModel):
        raise
    except Exception as error:  # MLX and the models' code raise nothing narrower
        what = f"its tensors do not make a {config['model_type']} model for mlx-lm ({error})"
        raise BrokenModel(f"{name}: {what}; pull the model again") from error
    return model


def read_weights(layers: TensorLayers) -> dict[str, Any]:
    """Every tensor under mlx-lm's name of it, read when it is evaluated. Raises BrokenModel."""
    names = layers.mlx_names()
    stored = {layers.prefix + own: theirs for own, theirs in names.items()}
    found: dict[str, Any] = {}
    for path in layers.paths():
        try:
            arrays: Any = mx.load(str(path), format="safetensors")
        except Exception as error:
            raise BrokenModel(f"{layers.manifest.name}: MLX cannot read {path} ({error}); pull it again") from error
        found |= {stored[key]: array for key, array in arrays.items() if key in stored}
    if missing := set(stored.values()) - set(found):
        raise BrokenModel(f"{layers.manifest.name} has no tensor {min(missing)}; pull the model again")
    return found


def _classes(config: dict[str, Any], name: str) -> tuple[Any, Any]:
    try:
        found: tuple[Any, Any] = _get_classes(config)
    except ValueError as error:
        raise no_such_class(name, config) from error
    return found


def _empty(config: dict[str, Any], name: str) -> Any:
    model_class, arguments = _classes(config, name)
    try:
        return model_class(arguments.from_dict(config))
    except Exception as error:
        raise BrokenModel(f"{name}: mlx-lm cannot use its config.json ({error}); pull the model again") from error


def _quantize(model: Any, weights: Mapping[str, Any], layers: TensorLayers, name: str) -> None:
    """Make room for quantized weights wherever there are scales."""
    own = {theirs: own for own, theirs in layers.mlx_names().items()}

    def setting(path: str, module: Any) -> dict[str, Any] | bool:
        scales = weights.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        stored = own.get(f"{path}.weight")
        found = layers.quantization_of(stored) if stored else layers.quantization
        columns, groups = weights[f"{path}.weight"].shape[-1], scales.shape[-1]
        if f"{path}.biases" in weights and not (found and found.fits(columns, groups)):
            found = of_shapes(columns, groups, found)
        if found is None or not found.fits(columns, groups):
            raise BrokenModel(f"{name}: nothing says how {path}.weight is quantized; pull the model again")
        how = _checked(found, name)
        if f"{path}.global_scale" not in weights:
            return how
        if "global_scale" not in inspect.signature(module.to_quantized).parameters:
            raise EngineError(
                f"{name}: {path} has a scale for the whole tensor, which this MLX has not; leave it to Ollama"
            )
        return {**how, "global_scale": True}

    if any(key.endswith(".scales") for key in weights):
        nn.quantize(model, class_predicate=setting)


def _checked(found: Quantization, name: str) -> dict[str, Any]:
    if found.mode not in MODES:
        raise EngineError(f"{name}: this MLX has no number format {found.mode!r}; leave the model to Ollama")
    return {"group_size": found.group_size, "bits": found.bits, "mode": found.mode}
