"""The tensors of an MLX model in a store: one safetensors blob for each tensor, or for each group of them.

Ollama stores a quantized tensor with its companions in one blob: `x.weight`, `x.weight.scale`, `x.weight.bias` (affine
only) and `x.weight.global_scale` (some nvfp4). `mlx_names` gives mlx-lm's names for them (`x.scales`, `x.biases`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests import quantization as quant
from pilotfish.manifests.layer_digests import naming, verified_before, verify_layers
from pilotfish.manifests.manifest import DRAFT_PREFIX, DraftConfig, Layer, Manifest, json_object
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.safetensors import BITS, TensorPlace, places, read_header
from pilotfish.manifests.store import Store

MAX_JSON_BYTES = 256 << 20  # a tokenizer.json of 250,000 entries has 33 MB
COMPANIONS = {".scale": "scales", ".bias": "biases", ".global_scale": "global_scale"}
_NUMPY = {"F64": "f8", "F32": "f4", "F16": "f2", "C64": "c8", "BOOL": "?"}
_NUMPY |= {f"{kind}{bits}": f"{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor, the layer and the blob it lies in, and what the blob's metadata says."""

    place: TensorPlace
    layer: Layer
    path: Path
    metadata: Mapping[str, str]


class TensorLayers:
    """The tensors and files of one model in a store, read when asked for; those of its bundled drafter apart.

    Opening reads every blob's header, and no weights. Safe to use from several threads.
    """

    def __init__(
        self, store: Store, manifest: Manifest, stored: Mapping[str, StoredTensor], prefix: str = "", folder: str = ""
    ) -> None:
        self._store, self.manifest = store, manifest
        self._stored = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
        self._folder = folder
        self.prefix = prefix  # what the names have in front in their blobs and layers; empty for a target's
        self.names: tuple[str, ...] = tuple(self._stored)
        self.draft: TensorLayers | None = None

    @classmethod
    def of(cls, manifest: Manifest, store: Store) -> TensorLayers:
        """Open a model's tensors. Raises BrokenModel, naming the model, the layer and the tensor, for a blob that is
        missing, has another size or other tensors than the manifest says, or a broken header; also for two tensors of
        one name and for a model without tensors."""
        stored: dict[str, StoredTensor] = {}
        for tensor_name, tensor in _all_stored(manifest, store):
            if tensor_name in stored:
                first = stored[tensor_name].layer.name
                what = f"tensor {tensor_name} is in two layers, {first} and {tensor.layer.name}"
                raise BrokenModel(f"{manifest.name}: {what}; pull the model again")
            stored[tensor_name] = tensor
        if not stored:
            raise BrokenModel(f"{manifest.name} has no tensor layers; it is no MLX model")
        config = store.config(manifest)
        draft = config.draft or DraftConfig()
        prefix = draft.tensor_prefix or DRAFT_PREFIX
        drafts = {name: tensor for name, tensor in stored.items() if name.startswith(prefix)}
        own = {name: tensor for name, tensor in stored.items() if name not in drafts}
        found = cls(store, manifest, own)
        if drafts:
            found.draft = cls(store, manifest, drafts, prefix, draft.folder)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The tensor, memory-mapped and read-only, in the header's shape.

        Types that numpy lacks come as unsigned integers of as many bits, and `dtype` says what they are: BF16 as
        uint16, F8_* as uint8; those of less than a byte (F4, F6_*) come as their bytes, in one dimension.
        Raises BrokenModel when the file is gone or got shorter.
        """
        tensor = self._at(name)
        place = tensor.place
        bits = BITS[place.dtype]
        kind = np.dtype(_NUMPY.get(place.dtype, f"u{bits // 8}" if bits >= 8 else "u1"))
        shape = place.shape if bits >= 8 else (place.size,)
        try:
            if not place.size:
                return np.empty(shape, kind)
            return np.memmap(tensor.path, kind, "r", place.start, (place.size // kind.itemsize,)).reshape(shape)
        except (OSError, ValueError) as error:
            raise BrokenModel(f"{self._where(tensor)} cannot be mapped ({error}); pull the model again") from error

    def dtype(self, name: str) -> str:
        """The tensor's type by safetensors' name: `BF16`, `F16`, `F32`, `U32`, ..."""
        return self._at(name).place.dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape as it is stored: packed 32-bit words where it is quantized."""
        return self._at(name).place.shape

    def path_of(self, name: str) -> Path:
        """The blob that holds the tensor, a whole safetensors file, under the key `self.prefix + name`."""
        return self._at(name).path

    def layer_of(self, name: str) -> Layer:
        """The layer of the manifest that holds the tensor."""
        return self._at(name).layer

    def paths(self) -> tuple[Path, ...]:
        """Every blob that holds one of the tensors, once."""
        return tuple(dict.fromkeys(tensor.path for tensor in self._stored.values()))

    def file(self, name: str) -> Path | None:
        """The blob of a named JSON layer (`config.json`; a draft's own), or of the `template`, `system` or `params`
        layer; None where the model has none. Raises BrokenModel, naming the layer, when it is missing or truncated."""
        layer = self._json_layer(name) or self.manifest.last(media.PREFIX + name)
        return None if layer is None else self._store.blob(layer, f"{self.manifest.name} (layer {name})")

    def json(self, name: str) -> dict[str, Any]:
        """A named JSON layer, read. Raises BrokenModel when the model has none or when it is no JSON object."""
        path = self.file(name)
        where = f"{self._folder}{name} of {self.manifest.name}"
        if path is None:
            raise BrokenModel(f"{where} is not in the manifest; pull the model again, or import its folder again")
        try:
            if path.stat().st_size > MAX_JSON_BYTES:
                raise BrokenModel(f"{where} is larger than {MAX_JSON_BYTES} bytes; pull the model again")
            data = path.read_bytes()
        except OSError as error:
            raise BrokenModel(f"{where} ({path}) cannot be read ({error.strerror}); pull the model again") from error
        return json_object(data, f"{where} ({path})", "pull the model again")

    @property
    def quantization(self) -> Quantization | None:
        """How most of the model is quantized: config.json's word, else the first quantized tensor's; None: plain."""
        first = next((name for name in self.names if f"{name}.scale" in self._stored), None)
        return quant.in_config(self._config) or (None if first is None else self.quantization_of(first))

    def quantization_of(self, name: str) -> Quantization | None:
        """How one tensor is quantized: None for one without scales.

        config.json's entry for its module, the blob's metadata, config.json's default and the shapes are asked in this
        order; what does not fit the shapes is passed over. Raises BrokenModel, naming the tensor, when nothing does.
        """
        scale = self._stored.get(f"{name}.scale")
        if scale is None:
            return None
        tensor = self._at(name)
        columns, scale_columns = _columns(tensor.place.shape), _columns(scale.place.shape)
        said = (
            quant.in_config(self._config, name.removesuffix(".weight")),
            quant.in_metadata(tensor.metadata, self.prefix + name),
        )
        hint = next((found for found in said if found), None)
        found = next((kind for kind in said if kind and kind.fits(columns, scale_columns)), None)
        if found is None and f"{name}.bias" in self._stored:
            found = quant.of_shapes(columns, scale_columns, hint)
        if found is None:
            what = f"{columns} words and {scale_columns} scales in a row are no quantization known here"
            raise BrokenModel(f"{self._where(tensor)}: {what}; pull the model again")
        return found

    def mlx_names(self) -> dict[str, str]:
        """mlx-lm's name of every tensor: companions of `x.weight` become `x.scales`, `x.biases`, `x.global_scale`."""
        return {name: self._mlx_name(name) for name in self.names}

    def verify(self, state_dir: Path | None = None) -> None:
        """Hash every blob of the model, its drafter's and its JSON files' too, unless that is remembered under
        `state_dir`. Raises BrokenModel naming model, layer and tensor."""
        verify_layers(self._store, self.manifest, self._hashed(), state_dir)

    def verified_before(self, state_dir: Path | None) -> bool:
        """Whether `verify` found them sound earlier, in the state that they are in now."""
        return verified_before(self._store, self.manifest, self._hashed(), state_dir)

    @cached_property
    def _config(self) -> dict[str, Any]:
        return self.json("config.json") if self.file("config.json") else {}

    def _hashed(self) -> tuple[Layer, ...]:
        return self.manifest.of_type(media.TENSOR, media.JSON)

    def _mlx_name(self, name: str) -> str:
        for ending, part in COMPANIONS.items():
            owner = name.removesuffix(ending)
            if owner != name and f"{owner}.scale" in self._stored and owner in self._stored:
                return f"{owner.removesuffix('.weight')}.{part}"
        return name

    def _json_layer(self, name: str) -> Layer | None:
        wanted = self._folder + name
        return next((layer for layer in self.manifest.of_type(media.JSON) if layer.name == wanted), None)

    def _at(self, name: str) -> StoredTensor:
        try:
            return self._stored[name]
        except KeyError:
            raise BrokenModel(f"{self.manifest.name} has no tensor {self.prefix}{name}; pull the model again") from None

    def _where(self, tensor: StoredTensor) -> str:
        return f"{self.manifest.name}: tensor {tensor.place.name} of layer {tensor.layer.name} ({tensor.path})"


def _all_stored(manifest: Manifest, store: Store) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of every tensor layer, layers that are listed twice once."""
    seen = set()
    for layer in manifest.of_type(media.TENSOR):
        if (layer.digest, layer.name) not in seen:
            seen.add((layer.digest, layer.name))
            yield from _stored_in(layer, manifest, store)


def _stored_in(layer: Layer, manifest: Manifest, store: Store) -> Iterator[tuple[str, StoredTensor]]:
    component, slash, own = layer.name.rpartition("/")  # image models have several, with names of their own
    with naming(manifest, layer):
        path = store.blob(layer)
        header = read_header(path)
        found = places(header, str(path))
        if not _belong(own, header.tensors):
            held = ", ".join(header.tensors[:3]) or "nothing"
            raise BrokenModel(f"{path} holds {held} and no tensor {own}: it was swapped; pull the model again")
    for place in found:
        yield component + slash + place.name, StoredTensor(place, layer, path, header.metadata)


def _belong(layer: str, tensors: Sequence[str]) -> bool:
    """Whether a layer's name is that of its tensor, or of the group that its tensors are."""
    return any(name == layer or name.startswith(layer + ".") for name in tensors)


def _columns(shape: tuple[int, ...]) -> int:
    return shape[-1] if shape else 0
