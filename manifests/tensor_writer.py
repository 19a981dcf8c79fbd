"""Putting an MLX model into a model store, laid out as Ollama's own `create` does it: a blob for each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.manifest import DRAFT_FOLDER, DRAFT_PREFIX, Layer
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.safetensors import METADATA
from pilotfish.manifests.writer import Chunk, add_bytes, add_stream, go_json, go_text, write_manifest

REQUIRES = "0.19.0"  # the first Ollama with safetensors models; its own `create` writes this
ALIGNMENT = 8  # bytes; the header is filled up with blanks
_DTYPES = {"f2": "F16", "f4": "F32", "f8": "F64", "u1": "U8", "u2": "U16", "u4": "U32", "i4": "I32", "i8": "I64"}


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to be written: its name in the blob, its type by safetensors' name, its shape, its bytes when asked."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int  # bytes
    chunks: Callable[[], Iterable[Chunk]]

    @classmethod
    def of(cls, name: str, array: np.ndarray[Any, Any], dtype: str = "") -> NewTensor:
        """A numpy array; `dtype` says what its bits are where numpy lacks the type (BF16 as uint16)."""
        data = np.ascontiguousarray(array)
        kind = dtype or _DTYPES[data.dtype.str[1:]]
        return cls(name, kind, array.shape, data.nbytes, lambda: [data.tobytes()])


def add_tensors(
    root: Path, name: str, tensors: Sequence[NewTensor], metadata: Mapping[str, str] | None = None
) -> Layer:
    """Write one blob that holds these tensors, streamed; the layer it makes, named `name`. Raises BrokenModel when a
    source gives other bytes than it promised."""
    return add_stream(root, _file(tensors, metadata or {}), media.TENSOR, name)


def quantized_metadata(quantization: Quantization) -> dict[str, str]:
    """What Ollama writes into a blob of one quantization; empty for one that it has no name for."""
    kind = quantization.ollama_type
    return {"quant_type": kind, "group_size": str(quantization.group_size)} if kind else {}


def add_json(root: Path, name: str, table: Mapping[str, Any]) -> Layer:
    """Write a named JSON layer."""
    return add_bytes(root, go_json(table), media.JSON, name)


def write_tensor_model(
    root: Path,
    name: ModelName,
    layers: Sequence[Layer],
    *,
    family: str = "",
    file_type: str = "",
    draft_architecture: str = "",
) -> Path:
    """List a model of these layers, whose blobs are in the store; returns the manifest's path.

    `draft_architecture` is that of a bundled drafter, whose layers have Ollama's prefixes: see `DRAFT_PREFIX`.
    """
    draft = {
        "model_format": "safetensors",
        "architecture": draft_architecture,
        "tensor_prefix": DRAFT_PREFIX,
        "config": f"{DRAFT_FOLDER}config.json",
    }
    config = {
        "model_format": "safetensors",
        "model_family": family,
        "model_families": [family] if family else None,
        "model_type": "",
        "file_type": file_type,
        "requires": REQUIRES,
        "capabilities": ["completion"],
        **({"draft": draft} if draft_architecture else {}),
        "architecture": "",
        "os": "",
    }
    return write_manifest(root, name, add_bytes(root, go_json(config), media.CONFIG_TYPE), layers)


def _file(tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> Iterator[Chunk]:
    yield _header(tensors, metadata)
    for tensor in tensors:
        left = tensor.size
        for chunk in tensor.chunks():
            left -= len(chunk)
            yield chunk
        if left:
            raise BrokenModel(f"tensor {tensor.name} has {tensor.size - left} bytes, not {tensor.size}; try again")


def _header(tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> bytes:
    table: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.size
        table[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, end]}
    data = go_text(dict(sorted(table.items()))).encode()
    data += b" " * (-len(data) % ALIGNMENT)
    return len(data).to_bytes(8, "little") + data
