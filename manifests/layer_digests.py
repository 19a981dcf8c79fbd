"""Hashing every blob of a model that has thousands: what was found is remembered once for all of them.

Remembering each file apart (see `fingerprints.file_digest`) would read and write the list of all of them for each.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.fingerprints import verify_blob
from pilotfish.manifests.manifest import Layer, Manifest
from pilotfish.manifests.remembered import Remembered, Stamp, settled, stamp_of
from pilotfish.manifests.store import Store

FACT = "layers-1"


def verify_layers(store: Store, manifest: Manifest, layers: Sequence[Layer], state_dir: Path | None = None) -> None:
    """Make sure that each layer's blob is there, has its size and hashes to its name.

    Read at most once for each state of all the files. Raises BrokenModel naming the model, the layer (for MLX models
    that is the tensor, or the group of tensors) and the blob.
    """
    state = _state(store, manifest, layers)
    remembered = Remembered(state_dir)
    stamp = _stamp(manifest.path)
    if stamp and remembered.get(manifest.path, FACT, stamp) == state:
        return
    for layer in layers:
        with naming(manifest, layer):
            verify_blob(store.blob_path(layer.digest), layer.digest)
    paths = {store.blob_path(layer.digest) for layer in layers}
    if stamp and _state(store, manifest, layers) == state and all(settled(stamp_of(path)) for path in paths):
        remembered.put(manifest.path, FACT, stamp, state)


def verified_before(store: Store, manifest: Manifest, layers: Sequence[Layer], state_dir: Path | None) -> bool:
    """Whether these layers were hashed earlier, in the state that they are in now.

    Raises BrokenModel as `verify_layers` does for a blob that is missing or has another size.
    """
    stamp = _stamp(manifest.path)
    return stamp is not None and Remembered(state_dir).get(manifest.path, FACT, stamp) == _state(
        store, manifest, layers
    )


@contextlib.contextmanager
def naming(manifest: Manifest, layer: Layer) -> Iterator[None]:
    """Puts the model and the layer in front of what is wrong with a blob."""
    try:
        yield
    except BrokenModel as error:
        kind = "tensor layer" if layer.media_type == media.TENSOR else "layer"
        named = layer.name or layer.media_type.removeprefix(media.PREFIX)
        raise BrokenModel(f"{manifest.name}: {kind} {named}: {error}") from error


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp_of(path)
    except OSError:  # the model was removed meanwhile
        return None


def _state(store: Store, manifest: Manifest, layers: Sequence[Layer]) -> str:
    """A digest of which files the layers are and in which state they are."""
    digest = hashlib.sha256()
    for layer in layers:
        with naming(manifest, layer):
            digest.update(f"{layer.digest} {_stamp(store.blob(layer))}\n".encode())
    return digest.hexdigest()
