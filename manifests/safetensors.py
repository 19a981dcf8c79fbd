"""The header of a safetensors file: which tensors a blob of an MLX model holds, and where.

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from pilotfish.hooks.errors import BrokenModel

MAX_HEADER_BYTES = 100 << 20  # the format's own limit
METADATA = "__metadata__"
BITS = {
    **{"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32},
    **{"F16": 16, "BF16": 16, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8},
    **{"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4},
}  # of one element, by the format's name of its type


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor inside a file: its type by the format's name, its shape, its first byte in the file, and its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """The names of a file's tensors, in order, and its `__metadata__`.

    `entries` are the tensors' entries as they stand in the file; `data_start` is the first byte after the header,
    `data_size` what follows it, in bytes.
    """

    tensors: tuple[str, ...]
    metadata: dict[str, str]
    entries: Mapping[str, Any] = field(default_factory=dict, repr=False)
    data_start: int = 0
    data_size: int = 0


def read_header(path: Path, model: str = "") -> SafetensorsHeader:
    """Read a safetensors file's header. Raises BrokenModel naming the file and, if given, the model."""
    where = f"{path} of {model}" if model else str(path)
    try:
        data, size = _header_bytes(path, where)
        table = json.loads(data)
    except OSError as error:
        raise BrokenModel(f"{where} cannot be read: {error.strerror}; pull the model again") from error
    except (ValueError, RecursionError) as error:
        raise BrokenModel(f"{where} has no readable safetensors header ({error}); pull the model again") from error
    if not isinstance(table, dict):
        raise BrokenModel(f"{where}: the safetensors header is not a JSON object; pull the model again")
    metadata = table.pop(METADATA, None)
    texts = metadata if isinstance(metadata, dict) else {}
    start = 8 + len(data)
    return SafetensorsHeader(
        tuple(table),
        {key: value for key, value in texts.items() if isinstance(value, str)},
        table,
        start,
        size - start,
    )


def places(header: SafetensorsHeader, where: str) -> tuple[TensorPlace, ...]:
    """Where each tensor of a file lies. Raises BrokenModel, beginning with `where`, for an entry that is malformed or
    reaches over the file's end, naming the tensor."""
    return tuple(_place(header, name, where) for name in header.tensors)


def _place(header: SafetensorsHeader, name: str, where: str) -> TensorPlace:
    entry = header.entries[name]
    table = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = table.get("dtype"), table.get("shape"), table.get("data_offsets")
    if (
        not isinstance(dtype, str)
        or dtype not in BITS
        or not _is_counts(shape)
        or not _is_counts(offsets)
        or len(offsets) != 2
    ):
        raise BrokenModel(f"{where}: the entry of tensor {name} is malformed ({str(entry)[:80]}); pull the model again")
    begin, end = offsets
    if end - begin != -(-math.prod(shape) * BITS[dtype] // 8):
        what = f"has {end - begin} bytes, which is no {dtype} of shape {shape}"
        raise BrokenModel(f"{where}: tensor {name} {what}; pull the model again")
    if end > header.data_size:
        what = f"ends {end - header.data_size} bytes behind the end of the file"
        raise BrokenModel(f"{where}: tensor {name} {what}; it was truncated: pull the model again")
    return TensorPlace(name, dtype, tuple(shape), header.data_start + begin, end - begin)


def _is_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _header_bytes(path: Path, where: str) -> tuple[bytes, int]:
    """The header's JSON and the file's size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if length == 0 or length > min(size - 8, MAX_HEADER_BYTES):
            raise BrokenModel(f"{where}: a safetensors header of {length} bytes is impossible; pull the model again")
        return file.read(length), size
