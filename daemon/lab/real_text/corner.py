"""Writing an enlarged GGUF: every tensor in the corner of a larger one, everything else a hole that reads as zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from pilotfish.daemon.lab.real_text.likeness import ARCHITECTURE, NORMS, WIDER, Likeness, Shape, block_of
from pilotfish.daemon.lab.tiny_models.making import add_key
from pilotfish.hooks.errors import UsageError
from pilotfish.manifests.gguf_header import ArrayRef, Header, TensorInfo, read_header

_EPSILON = f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon"
_ALIGNMENT = 32  # bytes; what a GGUF has that says nothing else


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor of `shape` goes. `source` is what stands in its corner, None for zeros alone."""

    name: str
    type: gguf.GGMLQuantizationType
    shape: Shape
    source: TensorInfo | None

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return row_bytes(self.type, self.shape[-1])

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1

    @property
    def size(self) -> int:
        return self.rows * self.row


def row_bytes(kind: gguf.GGMLQuantizationType, columns: int) -> int:
    """Bytes of a row of so many numbers. Raises UsageError where they are no whole blocks."""
    block, width = gguf.GGML_QUANT_SIZES[kind]
    if columns % block:
        raise UsageError(f"rows of {columns} numbers are no whole blocks of {kind.name}; choose another format")
    return int(columns // block * width)


def planned_bytes(source: Path, size: Likeness) -> int:
    """How large the file will be, without its header."""
    return sum(place.size for place in _places(read_header(source), size))


def write_enlarged(source: Path, target: Path, size: Likeness) -> None:
    """Write the model at `source` to `target` in these dimensions, each at least its own.

    Raises UsageError for a model that cannot be enlarged, BrokenModel for a broken one.
    """
    header = read_header(source)
    places = list(_places(header, size))
    start = _write_head(header, target, size, places)
    wider = size.embd != Likeness.of(header).embd
    data = np.memmap(source, np.uint8, "r")
    with target.open("r+b") as file:
        file.truncate(start + sum(map(_padded, places)))
    for place in places:
        if place.source is not None:
            at = header.data_at + place.source.offset
            _fill(target, start, place, data[at : at + place.source.size], halved=wider and _is_norm(place.name))
        start += _padded(place)


def _places(header: Header, size: Likeness) -> Iterator[_Place]:
    """Every tensor of the enlarged model: the source's in their order, then the blocks that it has besides."""
    own = Likeness.of(header)
    blocks: dict[int, list[TensorInfo]] = {}
    for tensor in header.tensors:
        yield _place(tensor.name, tensor, size, tensor)
        if found := block_of(tensor.name):
            blocks.setdefault(found[0], []).append(tensor)
    for number in range(own.blocks, size.blocks):
        for tensor in blocks[number % own.blocks]:
            _, name = block_of(tensor.name) or (0, "")
            yield _place(f"blk.{number}.{name}", tensor, size, None)


def _place(name: str, like: TensorInfo, size: Likeness, source: TensorInfo | None) -> _Place:
    shape = size.shape_of(name)
    if shape is None or like.type.startswith("type "):
        raise UsageError(f"{name} ({like.type}) is none that can be enlarged")
    return _Place(name, gguf.GGMLQuantizationType[like.type], shape, source)


def _write_head(header: Header, target: Path, size: Likeness, places: list[_Place]) -> int:
    """Everything before the data; where the data starts."""
    changed: dict[str, int | float] = {f"{ARCHITECTURE}.{key}": value for key, value in size.metadata()}
    epsilon = header.values.get(_EPSILON)
    if size.embd != Likeness.of(header).embd and isinstance(epsilon, float):
        changed[_EPSILON] = epsilon / WIDER
    writer = gguf.GGUFWriter(target, ARCHITECTURE)
    for key, value in {**header.values, **changed}.items():
        if key == "general.architecture":
            continue
        if isinstance(value, ArrayRef):
            text = value.element is gguf.GGUFValueType.STRING
            writer.add_array(key, value.strings() if text else list(value.numbers()))
        else:
            add_key(writer, key, value)
    for place in places:
        writer.add_tensor_info(place.name, place.shape, np.dtype(np.float32), place.size, raw_dtype=place.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return _aligned(target.stat().st_size)


def _fill(target: Path, start: int, place: _Place, data: np.ndarray, *, halved: bool) -> None:
    """Write a tensor's bytes into the corner."""
    source = place.source
    assert source is not None  # the caller's
    row = row_bytes(place.type, source.shape[0])
    if halved:
        data = (data.view(np.float32) * np.float32(0.5)).view(np.uint8)
    whole = np.memmap(target, np.uint8, "r+", start, (place.rows, place.row))
    whole[: len(data) // row, :row] = data.reshape(-1, row)
    whole.flush()


def _is_norm(name: str) -> bool:
    found = block_of(name)
    return (found[1] if found else name) in NORMS


def _padded(place: _Place) -> int:
    return _aligned(place.size)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
