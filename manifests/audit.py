"""What a manifest bundles, counted from what is there.

A metadata field that says "no draft layers" proves nothing: a model with `mtp_layers: 0` did carry an assistant under
another naming. So layers and tensors are counted. That something is bundled says nothing about whether Ollama uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests import safetensors
from pilotfish.manifests.assistant import Assistant, assistant_of
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import DRAFT_PREFIX, DraftConfig, Layer, Manifest, ModelConfig
from pilotfish.manifests.store import Store

DRAFT_TENSOR_MARKS = ("mtp.", ".mtp.", ".nextn.")
WEIGHT_WORDS = frozenset({"adapter", "draft", "lora", "projector", "tensor"})
WEIGHT_BYTES = 16 << 20  # an unknown layer as large as this is no metadata


@dataclass(frozen=True, slots=True)
class Audit:
    """What a manifest bundles. Counts are layers or tensors that exist."""

    model_layers: int = 0
    tensor_layers: int = 0
    draft_layers: int = 0
    draft_tensors: int = 0  # under the draft prefix, `*.nextn.*` or `mtp.*`, in GGUF and safetensors blobs
    draft_files: int = 0  # JSON layers in the draft folder
    draft_config: bool = False  # the config blob has a draft object
    adapters: int = 0
    projectors: int = 0
    vision_tensors: int = 0  # inside a model file
    weight_bearing_unknown: tuple[str, ...] = ()  # media types
    assistant: Assistant | None = None  # what the draft tensors are; None where there are none

    @property
    def bundles_draft(self) -> bool:
        """Whether any part of a drafter is in the manifest, whatever the metadata claims."""
        return bool(self.draft_layers or self.draft_tensors or self.draft_files or self.draft_config)

    @property
    def route(self) -> str:
        """Which engine can open it: `llama` (a GGUF), `mlx` (tensors and no GGUF) or `none`."""
        return "llama" if self.model_layers else "mlx" if self.tensor_layers else "none"

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Bundled weights that take part in the answer and that the runner does not apply. Empty: none."""
        found = [
            f"{count} {what} layer{'s' if count > 1 else ''}" for count, what in ((self.adapters, "adapter"),) if count
        ]
        found += [f"a layer of unknown weights ({media_type})" for media_type in self.weight_bearing_unknown]
        return tuple(found)

    @property
    def media(self) -> str:
        """What is bundled for images or sound, for a person; text is answered without it. Empty: nothing."""
        if self.projectors:
            return "a projector"
        return f"{self.vision_tensors} vision or audio tensors inside the model file" if self.vision_tensors else ""


def audit_model(store: Store, manifest: Manifest, weights: Iterable[GGUFMetadata] | None = None) -> Audit:
    """Audit a model in a store. `weights` is the metadata of its GGUF layers, read here when not given.

    Raises BrokenModel when the config or a weight file is unreadable.
    """
    if weights is None:
        layers = manifest.of_type(media.MODEL)
        weights = [read_metadata(store.blob(layer, manifest.name), manifest.name.short) for layer in layers]
    files = list(weights)
    config = store.config(manifest)
    unknown = [layer for layer in manifest.layers if layer.media_type not in media.WEIGHT_TYPES | media.METADATA_TYPES]
    bearing = [layer.media_type for layer in unknown if _bears_weights(layer, store.blob_path(layer.digest))]
    drafts = [name for file in files for name in file.draft_tensors] + list(_draft_tensors(store, manifest, config))
    draft = config.draft or DraftConfig()
    assistant = assistant_of(drafts, draft.tensor_prefix or DRAFT_PREFIX, draft.architecture)
    return Audit(
        model_layers=len(manifest.of_type(media.MODEL)),
        tensor_layers=len(manifest.of_type(media.TENSOR)),
        draft_layers=len(manifest.of_type(media.DRAFT)),
        draft_tensors=len(assistant.tensors) if assistant else 0,
        draft_files=sum(layer.name.startswith(draft.folder) for layer in manifest.of_type(media.JSON)),
        draft_config=config.draft is not None,
        adapters=len(manifest.of_type(media.ADAPTER)),
        projectors=len(manifest.of_type(media.PROJECTOR)),
        vision_tensors=sum(file.vision_tensors for file in files),
        weight_bearing_unknown=tuple(bearing),
        assistant=assistant,
    )


def _draft_tensors(store: Store, manifest: Manifest, config: ModelConfig) -> Iterator[str]:
    prefix = (config.draft.tensor_prefix if config.draft else "") or DRAFT_PREFIX
    for layer in manifest.of_type(media.TENSOR):
        for name in _tensor_names(store, layer, manifest):
            if name.startswith(prefix) or _is_draft(name):
                yield name


def _is_draft(name: str) -> bool:
    return any(mark in name if mark.startswith(".") else name.startswith(mark) for mark in DRAFT_TENSOR_MARKS)


def _tensor_names(store: Store, layer: Layer, manifest: Manifest) -> tuple[str, ...]:
    """The tensors of one layer; its own name where the blob cannot be read."""
    try:
        return safetensors.read_header(store.blob(layer, manifest.name), manifest.name.short).tensors
    except BrokenModel:
        return (layer.name,)


def _bears_weights(layer: Layer, path: Path) -> bool:
    """Whether a layer of unknown type holds weights: by its type's name, its size, or how its blob begins."""
    kind = layer.media_type.removeprefix(media.PREFIX).lower()
    if layer.size >= WEIGHT_BYTES or WEIGHT_WORDS.intersection(re.split(r"[^a-z]+", kind)):
        return True
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError:
        return False
    return start.startswith(b"GGUF") or start[8:] == b"{"  # a safetensors file: 8 bytes of length, then JSON
