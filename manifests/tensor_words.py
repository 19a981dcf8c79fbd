"""What the JSON files of an MLX model say that a GGUF says of itself: its chat template, its context, its width.

No blob of a tensor is looked at, so that a list of models costs little and one with a broken tensor is still listed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.store import Store

_TEMPLATE, _TOKENIZER_CONFIG, _CONFIG = "chat_template.jinja", "tokenizer_config.json", "config.json"


@dataclass(frozen=True, slots=True)
class TensorWords:
    """Empty and 0 where the files say nothing."""

    chat_template: str = ""
    context_length: int = 0  # tokens
    embedding_length: int = 0


def read_tensor_words(manifest: Manifest, store: Store) -> TensorWords | None:
    """What is said of a model whose weights are safetensors blobs; None for any other. Raises BrokenModel."""
    if manifest.of_type(media.MODEL) or not manifest.of_type(media.TENSOR):
        return None
    config = _json(manifest, store, _CONFIG)
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, Mapping) else config
    return TensorWords(
        _template(manifest, store), _number(text, "max_position_embeddings"), _number(text, "hidden_size")
    )


def _number(table: Mapping[str, Any], key: str) -> int:
    found = table.get(key)
    return found if type(found) is int and found > 0 else 0


def _template(manifest: Manifest, store: Store) -> str:
    if (alone := _file(manifest, store, _TEMPLATE)) is not None:
        return alone.decode("utf-8", "replace")
    found = _json(manifest, store, _TOKENIZER_CONFIG).get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, Mapping)}
        found = named.get("default")
    return found if isinstance(found, str) else ""


def _json(manifest: Manifest, store: Store, name: str) -> Mapping[str, Any]:
    data = _file(manifest, store, name)
    try:
        table = json.loads(data) if data is not None else {}
    except ValueError as error:
        raise BrokenModel(f"{name} of {manifest.name} is no JSON ({error}); pull the model again") from error
    return table if isinstance(table, dict) else {}


def _file(manifest: Manifest, store: Store, name: str) -> bytes | None:
    layers = [layer for layer in manifest.of_type(media.JSON) if layer.name == name]
    return store.read(layers[-1], manifest.name) if layers else None
