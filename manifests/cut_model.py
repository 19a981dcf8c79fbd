"""A GGUF cut down to its first blocks: a model that computes the same products on a few layers.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pilotfish.manifests.gguf_header import Header, TensorInfo
from pilotfish.manifests.gguf_numbers import GGMLQuantizationType

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_COUNTS_AT = 8  # of tensors, then of keys; behind the magic and the version
_ALIGNMENT = 32  # bytes; what a GGUF has that says nothing else
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class CutModel:
    """The first `kept` of `blocks` blocks of the model that `header` is of, and all that is outside of blocks."""

    header: Header
    kept: int
    blocks: int

    @classmethod
    def of(cls, header: Header) -> CutModel | None:
        """With as many blocks as it takes to have one of every kind: the same tensors, in the same shapes and formats.

        None for a model that is not made of blocks, or of tensors whose format is not known here.
        """
        if any(tensor.type.startswith("type ") for tensor in header.tensors):
            return None
        kinds: dict[int, set[tuple[str, tuple[int, ...], str]]] = {}
        for tensor in header.tensors:
            if found := _BLOCK.fullmatch(tensor.name):
                kinds.setdefault(int(found[1]), set()).add((found[2], tensor.shape, tensor.type))
        if sorted(kinds) != list(range(len(kinds))) or header.values.get(_count_key(header)) != len(kinds) or not kinds:
            return None
        every = {frozenset(kind) for kind in kinds.values()}
        first = [min(number for number, kind in kinds.items() if kind == one) for one in every]
        return cls(header, max(first) + 1, len(kinds))

    @property
    def size(self) -> int:
        """Bytes of its weights."""
        return sum(tensor.size for tensor in self._tensors)

    @property
    def share(self) -> float:
        """Of the whole model's weights."""
        return self.size / max(1, sum(tensor.size for tensor in self.header.tensors))

    def write(self, target: Path) -> None:
        """Raises OSError, also where the whole model's file has changed."""
        with self.header.path.open("rb") as source, target.open("wb") as file:
            file.write(self._head(source.read(self.header.tensors_at)))
            for tensor in self._tensors:
                _pad(file, self._alignment)
                source.seek(self.header.data_at + tensor.offset)
                _copy(source, file, tensor.size)
            _pad(file, self._alignment)

    @property
    def _tensors(self) -> list[TensorInfo]:
        return [tensor for tensor in self.header.tensors if _block(tensor) < self.kept]

    @property
    def _alignment(self) -> int:
        alignment = self.header.values.get("general.alignment", _ALIGNMENT)
        return alignment if isinstance(alignment, int) else _ALIGNMENT

    def _head(self, head: bytes) -> bytes:
        """The whole model's head with the new counts, then what is said of the tensors that are kept."""
        key = _count_key(self.header).encode()
        changed, at = bytearray(head), head.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
        struct.pack_into("<Q", changed, _COUNTS_AT, len(self._tensors))
        struct.pack_into("<I", changed, at + 4, self.kept)  # behind its type: 32 bits, or the lower half of 64
        offset = 0
        for tensor in self._tensors:
            changed += _said_of(tensor, offset)
            offset += -(-tensor.size // self._alignment) * self._alignment
        return bytes(changed)


def _count_key(header: Header) -> str:
    return f"{header.values.get('general.architecture')}.block_count"


def _block(tensor: TensorInfo) -> int:
    """The number of the block that a tensor is in; -1 outside of them."""
    found = _BLOCK.fullmatch(tensor.name)
    return int(found[1]) if found else -1


def _said_of(tensor: TensorInfo, offset: int) -> bytes:
    name, shape = tensor.name.encode(), tensor.shape
    kind = GGMLQuantizationType[tensor.type].value
    return struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name, len(shape), *shape, kind, offset)


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Raises OSError where the source ends before."""
    while size:
        if not (chunk := source.read(min(size, _CHUNK))):
            raise OSError(f"{source.name} was cut short while it was read")
        target.write(chunk)
        size -= len(chunk)
