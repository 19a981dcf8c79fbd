"""How large the model in a GGUF file is, read from its header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.gguf_header import TensorInfo, Value, read_header


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's metadata and its tensors by name."""

    path: Path
    values: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def is_recurrent(self) -> bool:
        """Whether part of its memory is a running state, which cannot be cut back token by token."""
        return any(key.startswith((f"{self.architecture}.ssm.", f"{self.architecture}.wkv.")) for key in self.values)

    def number(self, key: str, default: int | None = None) -> int:
        """`<architecture>.<key>`. Raises BrokenModel when it is absent and has no default."""
        value = self.values.get(f"{self.architecture}.{key}", default)
        if not isinstance(value, int):
            raise BrokenModel(f"{self.path} does not say {self.architecture}.{key}; use a complete GGUF")
        return value

    def real(self, key: str, default: float) -> float:
        value = self.values.get(f"{self.architecture}.{key}", default)
        return float(value) if isinstance(value, int | float) else default

    @property
    def head_dim(self) -> int:
        """Elements of one head's key and, in every model drafted with here, of its value."""
        shared = self.number("embedding_length") // max(1, self.number("attention.head_count"))
        return self.number("attention.key_length", shared)

    @property
    def n_vocab(self) -> int:
        """Rows of the embedding, which some files pad beyond the tokenizer's ids."""
        embedding = self.tensors.get("token_embd.weight")
        return embedding.elements // max(1, self.number("embedding_length")) if embedding else 0

    def cache_elements(self, n_ctx: int) -> int:
        """Keys and values of `n_ctx` cells."""
        heads = self.number("attention.head_count_kv", self.number("attention.head_count"))
        return 2 * self.number("block_count") * heads * self.head_dim * n_ctx


def read_shape(path: Path) -> ModelShape:
    """Raises BrokenModel."""
    header = read_header(path)
    return ModelShape(path, header.values, {tensor.name: tensor for tensor in header.tensors})
