"""What a model's own files say of it, whichever form they have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.manifest_paths import manifest_at
from pilotfish.manifests.tensor_facts import describe_tensors
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_words import TensorWords, read_tensor_words


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


@dataclass(frozen=True, slots=True)
class DescribedTensors:
    """`Described` by the files of an MLX model and its tensors' shapes."""

    chat_template: str
    context_length: int
    embedding_length: int
    parameter_count: int


def described(model: Path) -> Described:
    """What the launch's model, a GGUF or the manifest of an MLX model, says. Raises BrokenModel or ModelNotFound."""
    if (named := manifest_at(model)) is None:
        return read_metadata(model)
    store, manifest = named
    said = read_tensor_words(manifest, store) or TensorWords()
    facts = describe_tensors(TensorLayers.of(manifest, store))
    return DescribedTensors(said.chat_template, said.context_length, said.embedding_length, facts.parameter_count)
