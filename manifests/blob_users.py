"""Which models a weight file belongs to, found fast.

`Store.users` knows this too, but its module brings the GGUF reader and numpy along (0.2 s), and the shim has to decide
in less. Ollama passes only the blob's path to llama-server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel, InvalidModelName
from pilotfish.manifests import manifest as media
from pilotfish.manifests.digests import Digest
from pilotfish.manifests.manifest import Manifest, parse_manifest
from pilotfish.manifests.names import ModelName

MAX_MANIFEST_BYTES = 4 << 20  # of GGUF models; those with thousands of tensor layers are larger and not run by us


@dataclass(frozen=True, slots=True)
class Blob:
    """A weight file in a model store: the digest its name states and the models that use it, by name."""

    digest: Digest
    users: tuple[Manifest, ...]


def blob_of(path: Path) -> Blob | None:
    """The blob at `path`; None for a file that lies in no model store."""
    for candidate in (path.absolute(), path.resolve()):
        if candidate.parent.name == "blobs" and (digest := _digest(candidate.name)):
            return Blob(digest, tuple(_users(candidate.parent.parent / "manifests", digest)))
    return None


def _users(manifests: Path, digest: Digest) -> Iterator[Manifest]:
    for path in sorted(manifests.glob("*/*/*/*")):
        try:
            if path.stat().st_size > MAX_MANIFEST_BYTES or digest.hex.encode() not in (data := path.read_bytes()):
                continue
            manifest = parse_manifest(data, ModelName.from_path(path.relative_to(manifests)), path)
        except (OSError, BrokenModel, InvalidModelName):
            continue  # someone else's trouble: `pilotfish models` reports it
        if any(layer.digest == digest for layer in manifest.of_type(media.MODEL)):
            yield manifest


def _digest(name: str) -> Digest | None:
    try:
        return Digest.parse(name)
    except BrokenModel:
        return None
