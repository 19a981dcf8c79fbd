"""Manifests: what a model is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.digests import Digest
from pilotfish.manifests.names import ModelName

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
PREFIX = "application/vnd.ollama.image."
MODEL = PREFIX + "model"
PROJECTOR = PREFIX + "projector"
ADAPTER = PREFIX + "adapter"
DRAFT = PREFIX + "draft"
TENSOR = PREFIX + "tensor"
JSON = PREFIX + "json"
TEMPLATE = PREFIX + "template"
PROMPT = PREFIX + "prompt"  # the old spelling of template
SYSTEM = PREFIX + "system"
PARAMS = PREFIX + "params"
MESSAGES = PREFIX + "messages"
LICENSE = PREFIX + "license"
EMBED = PREFIX + "embed"  # deprecated; Ollama ignores it

DRAFT_PREFIX = "draft."  # of a bundled drafter's tensors, unless the config's draft object names another
DRAFT_FOLDER = "draft/"  # of its named JSON files

WEIGHT_TYPES = frozenset({MODEL, PROJECTOR, ADAPTER, DRAFT, TENSOR})
METADATA_TYPES = frozenset({JSON, TEMPLATE, PROMPT, SYSTEM, PARAMS, MESSAGES, LICENSE, EMBED, CONFIG_TYPE})


@dataclass(frozen=True, slots=True)
class Layer:
    """One blob of a model. `name` is set on `tensor` and `json` layers, `parent` on layers taken from another model."""

    media_type: str
    digest: Digest
    size: int  # bytes
    name: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model's layers. `digest` is the SHA-256 (hex) of the manifest file's bytes, as `ollama list` shows it."""

    name: ModelName
    path: Path
    digest: str
    config: Layer | None
    layers: tuple[Layer, ...]
    modified: float = 0.0  # seconds since the epoch

    def of_type(self, *media_types: str) -> tuple[Layer, ...]:
        """The layers of these media types, in order."""
        return tuple(layer for layer in self.layers if layer.media_type in media_types)

    def last(self, *media_types: str) -> Layer | None:
        """The layer that counts where Ollama uses only one: the last of its type."""
        found = self.of_type(*media_types)
        return found[-1] if found else None

    @property
    def weights(self) -> tuple[Layer, ...]:
        """The layers that an engine loads: GGUF files, or the tensors of an MLX model where there are none."""
        return self.of_type(MODEL) or self.of_type(TENSOR)

    @property
    def size(self) -> int:
        """Bytes of all layers and the config, as `ollama list` counts them."""
        return sum(layer.size for layer in self.layers) + (self.config.size if self.config else 0)


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """The config blob's `draft` object: a drafter stored in the same manifest."""

    tensor_prefix: str = ""
    architecture: str = ""
    config: str = ""  # the name of its config.json: "draft/config.json"

    @property
    def folder(self) -> str:
        """What the names of its JSON layers begin with."""
        return self.config.removesuffix("config.json") if self.config.endswith("/config.json") else DRAFT_FOLDER


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The config blob. Empty strings and tuples where it says nothing."""

    model_format: str = ""
    model_family: str = ""
    model_families: tuple[str, ...] = ()
    model_type: str = ""  # the parameter size, "134.52M"
    file_type: str = ""  # the quantization, "Q4_K_M"
    renderer: str = ""
    requires: str = ""
    remote_host: str = ""
    capabilities: tuple[str, ...] = ()
    context_length: int = 0
    draft: DraftConfig | None = None


def parse_manifest(data: bytes, name: ModelName, path: Path, modified: float = 0.0) -> Manifest:
    """Read a manifest's bytes. Raises BrokenModel naming the model and what is wrong."""
    table = json_object(data, f"manifest of {name} ({path})")
    config = table.get("config")
    return Manifest(
        name=name,
        path=path,
        digest=hashlib.sha256(data).hexdigest(),
        config=_layer(config, name, "config") if isinstance(config, Mapping) and config.get("digest") else None,
        layers=tuple(_layers(table.get("layers"), name)),
        modified=modified,
    )


def parse_config(data: bytes, where: str) -> ModelConfig:
    """Read a config blob's bytes; fields of a wrong type count as absent. Raises BrokenModel for what is no object."""
    table = json_object(data, where)
    draft = table.get("draft")
    return ModelConfig(
        model_format=_text(table, "model_format"),
        model_family=_text(table, "model_family"),
        model_families=_texts(table, "model_families"),
        model_type=_text(table, "model_type"),
        file_type=_text(table, "file_type"),
        renderer=_text(table, "renderer"),
        requires=_text(table, "requires"),
        remote_host=_text(table, "remote_host"),
        capabilities=_texts(table, "capabilities"),
        context_length=_number(table, "context_length"),
        draft=_draft(draft) if isinstance(draft, Mapping) else None,
    )


def _draft(table: Mapping[str, Any]) -> DraftConfig:
    return DraftConfig(_text(table, "tensor_prefix"), _text(table, "architecture"), _text(table, "config"))


def json_object(data: bytes, where: str, remedy: str = "pull or create the model again") -> dict[str, Any]:
    """The JSON object that `data` is. Raises BrokenModel, beginning with `where`, for anything else."""
    if not data.strip():
        raise BrokenModel(f"{where} is empty; {remedy}")
    try:
        table = json.loads(data)
    except (ValueError, RecursionError) as error:  # ValueError covers bad UTF-8 as well as bad JSON
        raise BrokenModel(f"{where} is not JSON ({error}); {remedy}") from error
    if not isinstance(table, dict):
        raise BrokenModel(f"{where} is not a JSON object; {remedy}")
    return table


def _layers(value: Any, name: ModelName) -> Iterator[Layer]:
    if value is None:
        return
    if not isinstance(value, list):
        raise BrokenModel(f"manifest of {name}: layers is not a list; pull the model again")
    for index, entry in enumerate(value):
        yield _layer(entry, name, f"layer {index}")


def _layer(entry: Any, name: ModelName, what: str) -> Layer:
    if not isinstance(entry, Mapping):
        raise BrokenModel(f"manifest of {name}: {what} is not an object; pull the model again")
    try:
        digest = Digest.parse(_text(entry, "digest"))
    except BrokenModel as error:
        raise BrokenModel(f"manifest of {name}: {what}: {error}") from error
    return Layer(_text(entry, "mediaType"), digest, _number(entry, "size"), _text(entry, "name"), _text(entry, "from"))


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _number(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
