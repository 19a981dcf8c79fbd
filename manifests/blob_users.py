"""Which models a weight file belongs to: Ollama passes only the blob's path to llama-server.

Finding out opens every manifest of the store, on a disk that may be slow, and at a load twice at most: the shim looks
once (`decision.decide`), and the runner, another process, once (`Launch.with_users`); both pass on what they found.
Nothing is imported here that brings the GGUF reader and numpy along (0.2 s): the shim has to decide in less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel, InvalidModelName
from pilotfish.manifests import manifest as media
from pilotfish.manifests.digests import Digest, blob_digest
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
        if candidate.parent.name == "blobs" and (digest := blob_digest(candidate)):
            return Blob(digest, users_of(candidate.parent.parent / "manifests", digest))
    return None


def users_of(manifests: Path, digest: Digest) -> tuple[Manifest, ...]:
    """The models below the folder `manifests` that have this blob as a `model` layer, by name."""
    return tuple(sorted(_users(manifests, digest), key=lambda manifest: manifest.name.short))


def _users(manifests: Path, digest: Digest) -> Iterator[Manifest]:
    for path in manifests.glob("*/*/*/*"):
        try:
            if path.stat().st_size > MAX_MANIFEST_BYTES or digest.hex.encode() not in (data := path.read_bytes()):
                continue
            manifest = parse_manifest(data, ModelName.from_path(path.relative_to(manifests)), path)
        except (OSError, BrokenModel, InvalidModelName):
            continue  # someone else's trouble: `pilotfish models` reports it
        if any(layer.digest == digest for layer in manifest.of_type(media.MODEL)):
            yield manifest
