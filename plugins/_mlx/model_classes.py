"""Whether mlx-lm has a class for a model, found out without importing it: that takes a second and 60 MB.

Its classes are modules named like the model's type, but for some that two tables in its source send elsewhere.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.plugins._mlx.build import mlx_lm_folder

_TABLES = ("MODEL_REMAPPING", "MODEL_ARCHITECTURE_REMAPPING")
_MODULE = re.compile(r"[A-Za-z0-9_-]+")


def model_config(layers: TensorLayers, name: str) -> dict[str, Any]:
    """The config.json of a model that mlx-lm's own code may compute. Raises BrokenModel or EngineError."""
    config = layers.json("config.json")
    if not isinstance(config.get("model_type"), str):
        raise BrokenModel(f"{name}: its config.json names no model_type; pull the model again")
    if own := config.get("model_file"):
        raise EngineError(f"{name} brings code of its own ({own}), which is not run here; leave it to Ollama")
    return config


def demand_class(layers: TensorLayers, name: str) -> None:
    """Raise EngineError or BrokenModel unless there is a class for the model. Raises EngineMissing without mlx-lm."""
    config, folder = model_config(layers, name), mlx_lm_folder()
    renamed, by_architecture = tables_in(folder / "utils.py")
    kind = config["model_type"]
    named = config.get("architectures") or ()
    architectures = [named] if isinstance(named, str) else [one for one in named if isinstance(one, str)]
    special = (by_architecture.get((kind, architecture)) for architecture in architectures)
    module = next(filter(None, special), renamed.get(kind, kind))
    if not _MODULE.fullmatch(module) or not (folder / "models" / f"{module}.py").is_file():
        raise no_such_class(name, config)


def no_such_class(name: str, config: Mapping[str, Any]) -> EngineError:
    """The error for a type that mlx-lm does not have."""
    kind = config["model_type"]
    return EngineError(f"{name}: this mlx-lm has no model class for {kind!r}; update it, or leave it to Ollama")


@functools.cache
def tables_in(source: Path) -> tuple[Mapping[str, str], Mapping[tuple[str, str], str]]:
    """The two tables as they stand in the source; empty ones where it has none that can be read."""
    found: dict[str, Any] = {name: {} for name in _TABLES}
    with contextlib.suppress(OSError, ValueError, SyntaxError):
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in found:
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found[_TABLES[0]], found[_TABLES[1]]
