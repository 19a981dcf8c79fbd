"""What the JSON files of an MLX model say that a GGUF says of itself: its chat template, its context, its width.

No blob of a tensor is looked at, so that a list of models costs little and one with a broken tensor is still listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.manifests import manifest as media
from pilotfish.manifests.manifest import Manifest, json_object
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
    return TensorWords(
        _template(manifest, store), number_in(config, "max_position_embeddings"), number_in(config, "hidden_size")
    )


def number_in(config: Mapping[str, Any], key: str, default: int = 0) -> int:
    """A positive whole number of a config.json: of the part that writes text where there are several, or of the whole;
    `default` where neither has one."""
    inner = config.get("text_config")
    tables = (inner, config) if isinstance(inner, Mapping) else (config,)
    found = (table.get(key) for table in tables)
    return next((value for value in found if type(value) is int and value > 0), default)


def _template(manifest: Manifest, store: Store) -> str:
    if (alone := _file(manifest, store, _TEMPLATE)) is not None:
        return alone.decode("utf-8", "replace")
    found = _json(manifest, store, _TOKENIZER_CONFIG).get("chat_template")
    if isinstance(found, list):  # several, by name
        tables = [entry for entry in found if isinstance(entry, Mapping)]
        found = next((table.get("template") for table in tables if table.get("name") == "default"), None)
    return found if isinstance(found, str) else ""


def _json(manifest: Manifest, store: Store, name: str) -> Mapping[str, Any]:
    data = _file(manifest, store, name)
    return {} if data is None else json_object(data, f"{name} of {manifest.name}", "pull the model again")


def _file(manifest: Manifest, store: Store, name: str) -> bytes | None:
    layers = [layer for layer in manifest.of_type(media.JSON) if layer.name == name]
    return store.read(layers[-1], manifest.name) if layers else None
