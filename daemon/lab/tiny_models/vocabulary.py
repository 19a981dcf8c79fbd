"""The vocabulary of a packaged model, read from its GGUF when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf

from pilotfish.daemon.lab.demonstration import demo_weights
from pilotfish.daemon.lab.subjects import windowed_weights
from pilotfish.daemon.lab.tiny_models.architecture import Words
from pilotfish.manifests.gguf_header import ArrayRef, read_header

PREFIX = "tokenizer."
_PER_TOKEN = ("tokens", "scores", "token_type")
_TYPES = {bool: gguf.GGUFValueType.BOOL, str: gguf.GGUFValueType.STRING, float: gguf.GGUFValueType.FLOAT32}


@dataclass(frozen=True, slots=True)
class VocabularyKeys:
    """Every `tokenizer.` key of a file. Arrays are lists: of bytes where they hold text."""

    values: Mapping[str, Any]
    size: int

    def first(self, entries: int | None) -> VocabularyKeys:
        """Its first tokens, and the merges that make nothing else."""
        if entries is None or entries >= self.size:
            return self
        values = dict(self.values)
        for name in _PER_TOKEN:
            if (key := f"{PREFIX}ggml.{name}") in values:
                values[key] = values[key][:entries]
        if merges := values.get(f"{PREFIX}ggml.merges"):
            kept = set(values[f"{PREFIX}ggml.tokens"])
            values[f"{PREFIX}ggml.merges"] = [merge for merge in merges if merge.replace(b" ", b"") in kept]
        return VocabularyKeys(values, entries)

    def add_to(self, writer: gguf.GGUFWriter) -> None:
        """Write all of it."""
        for key, value in self.values.items():
            if isinstance(value, list):
                writer.add_array(key, value)
            else:
                writer.add_key_value(key, value, _TYPES.get(type(value), gguf.GGUFValueType.UINT32))


@cache
def vocabulary_of(words: Words) -> VocabularyKeys:
    """Raises ModelNotFound, with the package to install."""
    return read_vocabulary(demo_weights() if words is Words.SMOLLM2 else windowed_weights())


def read_vocabulary(path: Path) -> VocabularyKeys:
    """The vocabulary in a GGUF. Raises BrokenModel."""
    values = dict(_tokenizer_values(path))
    return VocabularyKeys(values, len(values[f"{PREFIX}ggml.tokens"]))


def _tokenizer_values(path: Path) -> Iterator[tuple[str, Any]]:
    for key, value in read_header(path).values.items():
        if not key.startswith(PREFIX):
            continue
        if isinstance(value, ArrayRef):
            text = value.element is gguf.GGUFValueType.STRING
            yield key, value.strings() if text else list(value.numbers())
        else:
            yield key, value
