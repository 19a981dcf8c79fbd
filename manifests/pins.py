"""Pins of target models: taken from a store or a bare file, and checked before a model is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import TargetPin, WeightPin
from pilotfish.manifests import manifest as media
from pilotfish.manifests.blob_users import Blob, users_of
from pilotfish.manifests.digests import Digest, blob_digest
from pilotfish.manifests.fingerprints import file_digest, known_digest, tokenizer_pin, verify_blob
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.manifest_paths import manifest_at
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_facts import describe_tensors
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_tokenizer import layers_tokenizer_pin


def pin_model(store: Store, name: ModelName | str, state_dir: Path | None = None, *, verify: bool = True) -> TargetPin:
    """Take the pins of a model in a store.

    With `verify` every weight blob is hashed (once: the result is remembered under `state_dir`) and must hash to its
    name; without, blobs are checked for presence, size and a sound header only. Raises ModelNotFound or BrokenModel,
    naming the model and the blob.
    """
    return pin_manifest(store, store.manifest(name), state_dir, verify=verify)


def pin_manifest(store: Store, manifest: Manifest, state_dir: Path | None = None, *, verify: bool = True) -> TargetPin:
    """Take the pins of a manifest that has been read; see `pin_model`."""
    layers = manifest.of_type(media.MODEL)
    if not layers:
        return _pin_tensors(store, manifest, state_dir, verify)
    files = []
    for layer in layers:
        path = store.blob(layer, manifest.name)
        files.append((read_metadata(path, manifest.name.short), WeightPin(str(layer.digest), path, layer.size)))
        _verify(path, layer.digest, manifest.name, state_dir, verify)
    files.sort(key=lambda file: file[0].split_index)
    return _pin(manifest.name.short, files, manifest.digest, state_dir)


def pin_file(
    path: Path,
    state_dir: Path | None = None,
    store: Store | None = None,
    *,
    blob: Blob | None = None,
    verify: bool = True,
) -> TargetPin:
    """Take the pins of a model known by a weight file's path only, as a runner is started.

    If the file is a blob of a store (`store`, or the one its path lies in), the pin is that of the model that refers to
    it; where several do, of the one whose name sorts first. With `blob`, which is what `blob_of` found at the path, no
    manifest is looked for again. A manifest's own path stands for its model. A bare file is pinned under its own name,
    and is always hashed because no name vouches for it. Raises BrokenModel.
    """
    if (named := manifest_at(path)) is not None:
        return pin_manifest(*named, state_dir, verify=verify)
    digest = blob_digest(path) or blob_digest(path.resolve())
    store = store or Store.of_blob(path)
    if store and digest and blob is None:
        blob = Blob(digest, users_of(store.manifests, digest))
    users = blob.users if blob else ()
    if store and users:
        return _opened_at(path, pin_manifest(store, users[0], state_dir, verify=verify))
    metadata = read_metadata(path)
    if digest:
        _verify(path, digest, "", state_dir, verify)
    found = digest or file_digest(path, state_dir)
    return _pin(path.name, [(metadata, WeightPin(str(found), path, metadata.size))], None, state_dir)


def _pin(
    name: str, files: Sequence[tuple[GGUFMetadata, WeightPin]], manifest_digest: str | None, state_dir: Path | None
) -> TargetPin:
    first = files[0][0]
    return TargetPin(
        name=name,
        weights=tuple(weight for _, weight in files),
        tokenizer=tokenizer_pin(first.path, state_dir, first),
        manifest_digest=manifest_digest,
        format="gguf",
        architecture=first.architecture,
        quantization=first.quantization,
    )


def _pin_tensors(store: Store, manifest: Manifest, state_dir: Path | None, verify: bool) -> TargetPin:
    """The pin of a model in safetensors blobs. Its tokenizer's is that of the GGUF it would become."""
    found = manifest.of_type(media.TENSOR)
    if not found:
        raise BrokenModel(f"{manifest.name} has no weights in its manifest; pull the model again")
    layers = TensorLayers.of(manifest, store)
    if verify:
        layers.verify(state_dir)
    config, facts = store.config(manifest), describe_tensors(layers)
    return TargetPin(
        manifest.name.short,
        tuple(WeightPin(str(layer.digest), store.blob_path(layer.digest), layer.size) for layer in found),
        layers_tokenizer_pin(layers, state_dir),
        manifest.digest,
        "safetensors",
        config.model_family or facts.architecture,
        config.file_type or facts.quantization,
    )


def _opened_at(path: Path, pin: TargetPin) -> TargetPin:
    """The same pin with the file that was asked for in front."""
    weights = sorted(pin.weights, key=lambda weight: not weight.path.samefile(path))
    return TargetPin(
        pin.name, tuple(weights), pin.tokenizer, pin.manifest_digest, pin.format, pin.architecture, pin.quantization
    )


def _verify(path: Path, expected: Digest, model: ModelName | str, state_dir: Path | None, verify: bool) -> None:
    """Hash a blob if asked to; otherwise believe its name unless it is known to be wrong."""
    if verify or known_digest(path, state_dir) not in (None, expected):
        verify_blob(path, expected, state_dir, model)
