"""The header of a safetensors file: which tensors a blob of an MLX model holds.

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel

MAX_HEADER_BYTES = 100 << 20  # the format's own limit


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """The names of a file's tensors, in order, and its `__metadata__`."""

    tensors: tuple[str, ...]
    metadata: dict[str, str]


def read_header(path: Path, model: str = "") -> SafetensorsHeader:
    """Read a safetensors file's header. Raises BrokenModel naming the file and, if given, the model."""
    where = f"{path} of {model}" if model else str(path)
    try:
        table = json.loads(_header_bytes(path, where))
    except OSError as error:
        raise BrokenModel(f"{where} cannot be read: {error.strerror}; pull the model again") from error
    except (ValueError, RecursionError) as error:
        raise BrokenModel(f"{where} has no readable safetensors header ({error}); pull the model again") from error
    if not isinstance(table, dict):
        raise BrokenModel(f"{where}: the safetensors header is not a JSON object; pull the model again")
    metadata = table.get("__metadata__")
    texts = metadata if isinstance(metadata, dict) else {}
    return SafetensorsHeader(
        tuple(name for name in table if name != "__metadata__"),
        {key: value for key, value in texts.items() if isinstance(value, str)},
    )


def _header_bytes(path: Path, where: str) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if length == 0 or length > min(size - 8, MAX_HEADER_BYTES):
            raise BrokenModel(f"{where}: a safetensors header of {length} bytes is impossible; pull the model again")
        return file.read(length)
