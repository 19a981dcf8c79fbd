"""What a model's own files say of it, whichever form they have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.manifest_paths import manifest_at
from pilotfish.manifests.tensor_facts import describe_tensors
from pilotfish.manifests.tensor_layers import TensorLayers

_TEMPLATE_FILE, _TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"


class Described(Protocol):
    """Tokens, numbers and parameters; zeros and empty where the files say nothing."""

    @property
    def chat_template(self) -> str: ...
    @property
    def context_length(self) -> int: ...
    @property
    def embedding_length(self) -> int: ...
    @property
    def parameter_count(self) -> int: ...


class DescribedTensors:
    """`Described` by the JSON layers of an MLX model. Raises BrokenModel."""

    def __init__(self, layers: TensorLayers) -> None:
        facts, config = describe_tensors(layers), layers.json("config.json")
        nested = config.get("text_config")
        size = (nested if isinstance(nested, Mapping) else config).get("hidden_size")
        self.context_length, self.parameter_count = facts.context_length, facts.parameter_count
        self.embedding_length = size if type(size) is int else 0
        self.chat_template = _template(layers)


def described(model: Path) -> Described:
    """What the launch's model, a GGUF or the manifest of an MLX model, says. Raises BrokenModel or ModelNotFound."""
    if (named := manifest_at(model)) is None:
        return read_metadata(model)
    store, manifest = named
    return DescribedTensors(TensorLayers.of(manifest, store))


def _template(layers: TensorLayers) -> str:
    if path := layers.file(_TEMPLATE_FILE):
        return path.read_text(encoding="utf-8", errors="replace")
    found = layers.json(_TOKENIZER_CONFIG).get("chat_template") if layers.file(_TOKENIZER_CONFIG) else ""
    if isinstance(found, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, Mapping)}
        found = named.get("default")
    return found if isinstance(found, str) else ""
