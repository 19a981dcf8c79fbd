"""Putting a GGUF file into a model store, laid out as Ollama's own `create` does it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.digests import Digest
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import Layer
from pilotfish.manifests.names import ModelName

Chunk = bytes | memoryview

# Go's JSON encoder, which Ollama uses, writes these characters as escapes; with them a layer's digest is Ollama's.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def add_gguf(
    root: Path,
    name: ModelName,
    gguf_path: Path,
    *,
    template: str | None = None,
    system: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Path:
    """Add a GGUF file to the store at `root` as `name`; returns the manifest's path.

    The weights are hard-linked, or copied where that is impossible. Blobs and the manifest appear whole or not at
    all; the manifest last. An existing model of that name is replaced. Raises BrokenModel when the file is no GGUF.
    """
    metadata = read_metadata(gguf_path)
    layers = [add_file(root, gguf_path, media.MODEL)]
    if template is not None:
        layers.append(add_bytes(root, template.encode(), media.TEMPLATE))
    if system:
        layers.append(add_bytes(root, system.encode(), media.SYSTEM))
    if params:
        layers.append(add_bytes(root, go_json(dict(sorted(params.items()))), media.PARAMS))
    config = add_bytes(root, go_json(_config(metadata)), media.CONFIG_TYPE)
    return write_manifest(root, name, config, layers)


def human_number(count: int) -> str:
    """A parameter count as Ollama prints it: 134515008 is "134.52M", 8030261248 is "8.0B"."""
    for unit, letter, digits in ((10**9, "B", 1), (10**6, "M", 2)):
        if count >= unit:
            return f"{count / unit:.{0 if count % unit == 0 else digits}f}{letter}"
    return f"{count / 1000:.0f}K" if count >= 1000 else str(count)


def _config(metadata: GGUFMetadata) -> dict[str, Any]:
    return {
        "model_format": "gguf",
        "model_family": metadata.architecture,
        "model_families": [metadata.architecture],
        "model_type": human_number(metadata.parameter_count),
        "file_type": metadata.quantization,
        "architecture": "amd64",  # Ollama writes these two constants everywhere
        "os": "linux",
    }


def write_manifest(root: Path, name: ModelName, config: Layer, layers: Sequence[Layer]) -> Path:
    """List a model whose blobs are all there; one of the same name is replaced. Returns the manifest's path."""
    path = root / "manifests" / name.path
    table = {
        "schemaVersion": 2,
        "mediaType": media.MANIFEST_TYPE,
        "config": _entry(config),
        "layers": [_entry(layer) for layer in layers],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Staged in blobs/: Ollama would read a stray file beside the manifest as one more model.
    staged = _stage(root, [go_json(table)])
    staged.replace(path)
    return path


def _entry(layer: Layer) -> dict[str, Any]:
    entry = {"mediaType": layer.media_type, "digest": str(layer.digest), "size": layer.size}
    return {**entry, "name": layer.name} if layer.name else entry


def add_bytes(root: Path, data: bytes, media_type: str, name: str = "") -> Layer:
    """Put a small blob into the store; the layer it makes."""
    digest = Digest(hashlib.sha256(data).hexdigest())
    target = root / "blobs" / digest.blob
    _stage(root, [data]).replace(target)
    return Layer(media_type, digest, len(data), name)


def add_file(root: Path, source: Path, media_type: str, name: str = "") -> Layer:
    """Put a file into the store by hard link, or by copy where that is impossible; the layer it makes.

    Raises BrokenModel when the file changes meanwhile, and OSError.
    """
    digest = _hash(source)
    target = root / "blobs" / digest.blob
    if not _holds(target, source, digest):
        _link_or_copy(root, source.resolve(), target, digest)
    return Layer(media_type, digest, source.stat().st_size, name)


def _holds(target: Path, source: Path, digest: Digest) -> bool:
    """Whether a blob is there already and undamaged."""
    try:
        return target.samefile(source) or _hash(target) == digest
    except OSError:
        return False


def _link_or_copy(root: Path, source: Path, target: Path, digest: Digest) -> None:
    staged = _stage(root, [])
    try:
        staged.unlink()
        try:
            os.link(source, staged)
        except OSError:  # another file system, another owner, or no hard links at all
            shutil.copyfile(source, staged)
            if _hash(staged) != digest:
                raise BrokenModel(f"{source} changed while it was copied to {target}; try again") from None
        staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def _hash(path: Path) -> Digest:
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


def add_stream(root: Path, chunks: Iterable[Chunk], media_type: str, name: str = "") -> Layer:
    """Put what `chunks` give into the store, written and hashed in one go; the layer it makes.

    Whatever `chunks` raises leaves no blob behind.
    """
    digest, size = hashlib.sha256(), 0

    def hashed() -> Iterator[Chunk]:
        nonlocal size
        for chunk in chunks:
            digest.update(chunk)
            size += memoryview(chunk).nbytes
            yield chunk

    staged = _stage(root, hashed())
    found = Digest(digest.hexdigest())
    staged.replace(root / "blobs" / found.blob)
    return Layer(media_type, found, size, name)


def _stage(root: Path, chunks: Iterable[Chunk]) -> Path:
    """A new file in `blobs/` with these bytes, to be renamed into place."""
    blobs = root / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="sha256-", dir=blobs)  # the prefix of Ollama's own staging files
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o644)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def go_json(value: Any) -> bytes:
    """JSON as Go's encoder writes it, so that equal values have equal digests in Ollama's blobs and in ours."""
    return f"{go_text(value)}\n".encode()


def go_text(value: Any) -> str:
    """The same without the line break at the end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text
