"""How large the model in a GGUF file is, read from its header.

The file was pinned before: what is wrong with it was found there. `gguf.GGUFReader` is no alternative, it makes an
array of every entry of the vocabulary: 2.1 s for 49,152 tokens against 0.03 s here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.file_window import FileWindow
from pilotfish.plugins._gguf_formats import FORMATS

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class TensorShape:
    elements: int
    type: GGMLQuantizationType

    @property
    def size(self) -> int:
        """In bytes, as stored."""
        block: int
        width: int
        block, width = GGML_QUANT_SIZES[self.type]
        return self.elements // block * width


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's scalar metadata and its tensors by name."""

    path: Path
    values: Mapping[str, Scalar]
    tensors: Mapping[str, TensorShape]

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
    try:
        with path.open("rb") as file:
            return _Reader(path, FileWindow(file)).shape()
    except (OSError, ValueError, KeyError) as error:
        raise BrokenModel(f"{path} cannot be read: {error}; get the file again") from error


class _Reader:
    """One pass over the header; `at` is the offset of what comes next."""

    def __init__(self, path: Path, view: FileWindow) -> None:
        self._path = path
        self._view = view
        self._at = 8  # after the magic and the version

    def shape(self) -> ModelShape:
        n_tensors, n_keys = self._unpack("QQ")
        values = {key: value for key, value in (self._entry() for _ in range(n_keys)) if value is not None}
        return ModelShape(self._path, values, dict(self._tensor() for _ in range(n_tensors)))

    def _entry(self) -> tuple[str, Scalar | None]:
        """A key with its value; None for an array."""
        key = self._text()
        return key, self._value(GGUFValueType(self._unpack("I")[0]))

    def _value(self, kind: GGUFValueType) -> Scalar | None:
        if kind is GGUFValueType.STRING:
            return self._text()
        if kind is GGUFValueType.ARRAY:
            self._skip_array()
            return None
        value: Scalar = self._unpack(FORMATS[kind])[0]
        return value

    def _skip_array(self) -> None:
        number, count = self._unpack("IQ")
        kind = GGUFValueType(number)
        if kind is not GGUFValueType.STRING:
            self._at += count * struct.calcsize(FORMATS[kind])
            return
        self._at = self._view.after_strings(self._at, count)

    def _tensor(self) -> tuple[str, TensorShape]:
        name = self._text()
        elements = 1
        for size in self._unpack(f"{self._unpack('I')[0]}Q"):
            elements *= size
        kind, _ = self._unpack("IQ")
        return name, TensorShape(elements, GGMLQuantizationType(kind))

    def _text(self) -> str:
        (length,) = self._unpack("Q")
        self._at += length
        return self._view.read(self._at - length, length).decode("utf-8", "replace")

    def _unpack(self, format: str) -> tuple[int, ...]:
        found = self._view.unpack(format, self._at)
        self._at += struct.calcsize("<" + format)
        return found
