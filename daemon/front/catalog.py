"""The models the front can serve: read from the store off the event loop, remembered by manifest digest."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotfish.daemon.chat.answers.answer_format import call_format_of, may_think
from pilotfish.daemon.front.errors import StatusError
from pilotfish.daemon.front.requests import Message, parse_messages
from pilotfish.hooks.errors import BrokenModel, ModelNotFound, PilotfishError, RequestError
from pilotfish.manifests import manifest as media
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import Manifest, ModelConfig
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_words import TensorWords, read_tensor_words

log = logging.getLogger("pilotfish.front")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Everything a manifest says about one model, layers read and checked."""

    manifest: Manifest
    config: ModelConfig
    metadata: GGUFMetadata | None  # None for a model without GGUF weights
    tensors: TensorWords | None = None  # for one in safetensors blobs
    options: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    messages: tuple[Message, ...] = ()
    template: str = ""  # a Go template, which only Ollama can execute
    licenses: tuple[str, ...] = ()
    adapters: tuple[Path, ...] = ()

    @property
    def name(self) -> ModelName:
        return self.manifest.name

    @property
    def short(self) -> str:
        """The name as Ollama displays it."""
        return self.name.short

    @property
    def weights(self) -> Path:
        """What a runner is told to load: the GGUF blob, or the manifest of an MLX model.

        Raises StatusError for a model that no runner can run, saying what can.
        """
        remedy = "run it through Ollama (`ollama serve`)"
        if self.config.remote_host:
            raise StatusError(400, f"model '{self.short}' runs on {self.config.remote_host}, not here; {remedy}")
        if self.adapters:
            raise StatusError(400, f"model '{self.short}' has a LoRA adapter, which is not supported here; {remedy}")
        if self.metadata is not None:
            return self.metadata.path
        if self.tensors is None:
            raise StatusError(400, f"model '{self.short}' has no weights, which the runner needs; {remedy}")
        return self.manifest.path

    @property
    def key(self) -> str:
        """Equal for names that share a runner."""
        return str(self.weights) if self.metadata else f"{self.weights}@{self.manifest.digest}"

    @property
    def chat_template(self) -> str:
        """The one that comes with the weights; empty where none does."""
        described = self.metadata or self.tensors
        return described.chat_template if described else ""

    @property
    def has_chat_template(self) -> bool:
        return bool(self.chat_template)

    @property
    def ollama_renders(self) -> bool:
        """Whether Ollama renders its prompts itself, and has not llama-server do it by the GGUF's chat template."""
        return bool(self.template or self.config.renderer) or self.metadata is None

    @property
    def can_shift(self) -> bool:
        """Whether its context may forget its beginning when nothing is said about it."""
        return "deepseek2" not in (self.config.model_family, *self.config.model_families)

    @property
    def train_context(self) -> int:
        """Tokens the model was trained for; 0 when unknown."""
        described = self.metadata or self.tensors
        return (described.context_length if described else 0) or self.config.context_length

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What this front does with the model; less than Ollama can, where images are concerned, and tools and thinking
        in ways that are not known here."""
        if self.metadata is None and (self.tensors is None or "completion" not in self.config.capabilities):
            return self.config.capabilities
        if self.metadata is not None and self.metadata.is_embedding:
            return ("embedding",)
        template = self.chat_template
        calls = "tools" in template and bool(call_format_of(template))
        found = {"completion": True, "tools": calls, "thinking": may_think(template)}
        return tuple(name for name, can in found.items() if can)

    def details(self) -> dict[str, Any]:
        """The `details` object of `/api/show` and `/api/ps`."""
        parent = self.manifest.last(media.MODEL)
        quantization = self.config.file_type
        if quantization in ("", "unknown") and self.metadata:
            quantization = self.metadata.quantization
        return {
            "parent_model": parent.parent if parent else "",
            "format": self.config.model_format,
            "family": self.config.model_family,
            "families": list(self.config.model_families) or None,
            "parameter_size": self.config.model_type,
            "quantization_level": quantization,
        }


class Catalog:
    """Looks models up by any name Ollama accepts. Safe to use from many requests at once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[tuple[str, ModelName, float], ServedModel] = {}

    async def find(self, text: str) -> ServedModel:
        """The model called `text`. Raises StatusError 404 in Ollama's words, RequestError for a missing name,
        InvalidModelName, or BrokenModel."""
        if not text.strip():
            raise RequestError("model is required")
        return await asyncio.to_thread(self._find, text)

    async def all(self) -> list[ServedModel]:
        """All models whose manifests can be read, most recently changed first."""
        return await asyncio.to_thread(self._all)

    def _find(self, text: str) -> ServedModel:
        name = ModelName.parse(text)
        try:
            return self._served(self.store.manifest(name), strict=True)
        except ModelNotFound as error:
            raise StatusError(404, f"model '{text.strip()}' not found") from error

    def _all(self) -> list[ServedModel]:
        found: list[ServedModel] = []
        for manifest in self.store.models().models:
            try:
                found.append(self._served(manifest, strict=False))
            except PilotfishError as error:
                log.warning("%s is not listed: %s", manifest.name, error)
        return sorted(found, key=lambda model: -int(model.manifest.modified))

    def _served(self, manifest: Manifest, *, strict: bool) -> ServedModel:
        """With `strict`, weights that are missing or no GGUF are an error; without, such a model is still listed."""
        key = (manifest.digest, manifest.name, manifest.modified)
        layer = manifest.last(media.MODEL)
        if known := self._known.get(key):
            if strict and layer is not None:
                self.store.blob(layer, manifest.name)  # may have been removed since
            if known.metadata is not None or layer is None:
                return known
        model = self._read(manifest, strict=strict)
        self._known[key] = model
        return model

    def _read(self, manifest: Manifest, *, strict: bool) -> ServedModel:
        store = self.store
        return ServedModel(
            manifest=manifest,
            config=store.config(manifest),
            metadata=self._metadata(manifest, strict=strict),
            tensors=read_tensor_words(manifest, store),
            options=store.params(manifest),
            system=store.text(manifest, media.SYSTEM) or "",
            messages=_messages(manifest, store.text(manifest, media.MESSAGES)),
            template=store.text(manifest, media.TEMPLATE, media.PROMPT) or "",
            licenses=tuple(
                store.read(layer, manifest.name).decode("utf-8", "replace") for layer in manifest.of_type(media.LICENSE)
            ),
            adapters=tuple(store.blob_path(layer.digest) for layer in manifest.of_type(media.ADAPTER)),
        )

    def _metadata(self, manifest: Manifest, *, strict: bool) -> GGUFMetadata | None:
        layer = manifest.last(media.MODEL)
        if layer is None:
            return None
        try:
            return read_metadata(self.store.blob(layer, manifest.name), manifest.name.short)
        except BrokenModel as error:
            if strict:
                raise
            log.warning("%s: %s", manifest.name, error)
            return None


def _messages(manifest: Manifest, text: str | None) -> tuple[Message, ...]:
    if not text:
        return ()
    try:
        return parse_messages(json.loads(text))
    except (ValueError, TypeError, RequestError) as error:
        raise BrokenModel(f"messages of {manifest.name} cannot be read ({error}); create the model again") from error
