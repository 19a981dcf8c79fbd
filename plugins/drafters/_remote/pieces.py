"""The pieces of a GGUF file's vocabulary, as the file writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.gguf import read_metadata

_MODEL, _TOKENS, _TYPES = "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"


@dataclass(frozen=True, slots=True)
class Pieces:
    """`texts[i]` and `types[i]` belong to id i; `kind` is the tokenizer's name (`gpt2`, `llama`, ...)."""

    kind: str
    texts: Sequence[str]
    types: Sequence[int]


def read_pieces(path: Path) -> Pieces:
    """Raises BrokenModel when the file cannot be read or names no tokens with their types."""
    metadata = read_metadata(path)
    tokens, types = metadata.array(_TOKENS), metadata.array(_TYPES)
    if tokens is None or types is None:
        raise BrokenModel(f"{path} does not say {_TOKENS} and {_TYPES}; use a complete GGUF")
    texts = [text.decode("utf-8", "replace") for text in tokens.strings()]
    return Pieces(metadata.text(_MODEL), texts, [int(kind) for kind in types.numbers()])
