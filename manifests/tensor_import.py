"""A model's folder, written into a model store as Ollama's MLX engine has such models: see `tensor_writer`.

Every tensor is read once, and written and hashed on the way. A file with a single tensor is linked. The manifest comes
last, so that an import that ends early leaves a few blobs that nothing lists; Ollama removes such at its next start.

Quantized tensors of mlx-lm (`x.weight`, `x.scales`, `x.biases`) become one blob under Ollama's names. Experts that the
folder has one by one stay so, where Ollama's own `create` would stack them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, UsageError, WorldError
from pilotfish.manifests import manifest as media
from pilotfish.manifests import quantization as quant
from pilotfish.manifests.manifest import DRAFT_FOLDER, DRAFT_PREFIX, Layer
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.tensor_folder import FolderTensor, ModelFolder
from pilotfish.manifests.tensor_writer import NewTensor, add_tensors, quantized_metadata, write_tensor_model
from pilotfish.manifests.writer import add_bytes, add_file

_FOREIGN = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_2", ".weight_scale_inv")  # others' formats
_SPARE = 64 << 20  # bytes that stay free on the disk

Progress = Callable[[int, int], None]  # bytes that are done, bytes in all


@dataclass(frozen=True, slots=True)
class PlannedBlob:
    """A blob to be written: the name of its layer, its tensors by their names in it, its metadata."""

    name: str
    tensors: Mapping[str, FolderTensor]
    metadata: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.place.size for tensor in self.tensors.values())

    @property
    def linkable(self) -> FolderTensor | None:
        """The tensor of which there is a file already that could be this blob."""
        (name, tensor), *more = self.tensors.items()
        return tensor if not more and tensor.alone and tensor.place.name == name else None


def import_folder(
    root: Path,
    name: ModelName,
    folder: ModelFolder,
    *,
    draft: ModelFolder | None = None,
    template: str = "",
    progress: Progress = lambda done, size: None,
) -> Path:
    """Write the model in `folder` into the store at `root`; returns the manifest's path.

    `draft` is bundled with it as Ollama bundles drafters; `template` is Ollama's, in Go's language. A model of that
    name is replaced. Raises UsageError for weights in a format that MLX does not have, BrokenModel for a folder that
    changes meanwhile, and WorldError where the disk has too little room.
    """
    own, drafts = plan_blobs(folder), [_as_draft(blob) for blob in plan_blobs(draft)] if draft else []
    _need_room(root, sum(blob.size for blob in own + drafts if not blob.linkable))
    size, done = sum(blob.size for blob in own + drafts), 0

    def written(blobs: Sequence[PlannedBlob]) -> Iterator[Layer]:
        nonlocal done
        for blob in blobs:
            progress(done, size)
            yield _write(root, blob)
            done += blob.size

    layers = [*written(own), *_file_layers(root, folder, "")]
    if draft:
        layers += [*written(drafts), *_file_layers(root, draft, DRAFT_FOLDER)]
    if template:
        layers.append(add_bytes(root, template.encode(), media.TEMPLATE))
    progress(size, size)
    kind = quant.in_config(folder.config)
    return write_tensor_model(
        root,
        name,
        layers,
        family=str(folder.config.get("model_type") or ""),
        file_type=kind.ollama_type if kind else "",
        draft_architecture=draft.architecture if draft else "",
    )


def plan_blobs(folder: ModelFolder) -> list[PlannedBlob]:
    """The blobs of a folder's tensors, in order of their names. Raises UsageError, naming the tensor, for weights that
    are quantized in a way that MLX does not have."""
    for name, tensor in folder.tensors.items():
        if name.endswith(_FOREIGN) or tensor.place.dtype.startswith("F8"):
            what = f"tensor {name} ({tensor.place.dtype}) is quantized in a way that MLX does not have"
            raise UsageError(f"{folder.path}: {what}; convert the model with mlx_lm.convert")
    return list(_planned(folder))


def _planned(folder: ModelFolder) -> Iterator[PlannedBlob]:
    tensors = folder.tensors
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        if part in ("scales", "biases") and f"{module}.scales" in tensors and f"{module}.weight" in tensors:
            continue  # goes with its weight
        if part != "weight" or f"{module}.scales" not in tensors:
            yield PlannedBlob(name, {name: tensor}, {})
            continue
        companions = {f"{name}.scale": f"{module}.scales", f"{name}.bias": f"{module}.biases"}
        found = {new: tensors[old] for new, old in companions.items() if old in tensors}
        yield PlannedBlob(name, {name: tensor, **found}, _metadata(folder.config, module))


def _metadata(config: Mapping[str, Any], module: str) -> dict[str, str]:
    kind = quant.in_config(config, module)
    return quantized_metadata(kind) if kind else {}


def _as_draft(blob: PlannedBlob) -> PlannedBlob:
    tensors = {DRAFT_PREFIX + name: tensor for name, tensor in blob.tensors.items()}
    return replace(blob, name=DRAFT_PREFIX + blob.name, tensors=tensors)


def _write(root: Path, blob: PlannedBlob) -> Layer:
    try:
        if blob.linkable:
            return add_file(root, blob.linkable.path, media.TENSOR, blob.name)
        tensors = [_new(name, tensor) for name, tensor in blob.tensors.items()]
        return add_tensors(root, blob.name, tensors, blob.metadata)
    except BrokenModel as error:
        source = next(iter(blob.tensors.values())).path
        raise BrokenModel(f"{source} changed while it was read: {error}") from error


def _new(name: str, tensor: FolderTensor) -> NewTensor:
    return NewTensor(name, tensor.place.dtype, tensor.place.shape, tensor.place.size, tensor.chunks)


def _file_layers(root: Path, folder: ModelFolder, prefix: str) -> list[Layer]:
    return [add_bytes(root, file.read_bytes(), media.JSON, prefix + file.name) for file in folder.files]


def _need_room(root: Path, size: int) -> None:
    there = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if size + _SPARE > free:
        raise WorldError(f"{root} has {free} bytes left on its disk, and the model needs {size + _SPARE}; make room")
