"""Which models are computed here and which are left to the Ollama behind this server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.front.catalog import Catalog, ServedModel
from pilotfish.daemon.front.settings import Upstream
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.environment import switched_off
from pilotfish.hooks.errors import ConfigError, PilotfishError
from pilotfish.hooks.protocols import RefusesModels
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.pins import pin_manifest
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.front")

SAFETENSORS = "safetensors"
_AGAIN = 600.0  # seconds after which a model that could not be loaded here is tried once more

Obstacle = Callable[[Manifest], str]


class Ownership:
    """Decides by name. `obstacle` says why no verifier here computes a model in safetensors; empty when one does."""

    def __init__(
        self,
        catalog: Catalog,
        upstream: Upstream,
        obstacle: Obstacle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._upstream = upstream
        self._obstacle = obstacle
        self._clock = clock
        self._failed: dict[str, float] = {}  # by the manifest's digest: when
        self._told: dict[str, str] = {}

    async def owned(self, name: str) -> ServedModel | None:
        """The model called `name`, if it is computed here."""
        try:
            model = await self._catalog.find(name)
            why = await asyncio.to_thread(self._why_not, model)
        except PilotfishError as error:
            log.debug("%r is left to the upstream: %s", name, error)
            return None
        self._tell(model, why)
        return None if why else model

    def failed(self, model: ServedModel) -> None:
        """It could not be loaded: for a while it is the upstream's."""
        self._failed[model.manifest.digest] = self._clock()

    def _why_not(self, model: ServedModel) -> str:
        if switched_off("PILOTFISH") or not _enabled(model):
            return "it is switched off"
        since = self._failed.get(model.manifest.digest)
        if since is not None and self._clock() - since < _AGAIN:
            return "it could not be loaded here"
        if model.metadata is not None and not self._upstream.serve_gguf:
            return "GGUF models are the overlay's or stock's; serve_gguf is not set"
        if model.config.model_format == SAFETENSORS and (why := self._obstacle(model.manifest)):
            return why
        _ = model.weights  # raises for what no runner here takes
        return ""

    def _tell(self, model: ServedModel, why: str) -> None:
        """One line in the log for each model, and another when that changes."""
        if self._told.get(model.manifest.digest) != why:
            self._told[model.manifest.digest] = why
            log.info("%s is %s", model.short, f"left to the upstream: {why}" if why else "computed here")


def verifier_obstacle(store: Store) -> Obstacle:
    """Asks the verifiers that are registered, each of which may say that a model is none of its own."""
    registry: list[Registry] = []

    def obstacle(manifest: Manifest) -> str:
        if not registry:
            registry.append(Registry.load(_config()))
        pin = pin_manifest(store, manifest, _state(), verify=False)
        options = EngineOptions(state_dir=_state())
        found: list[object] = [registry[0].verifier(name) for name in registry[0].verifiers]
        # One that refuses nothing beforehand does not say that it takes safetensors.
        told = [verifier.unfit_for(pin, options) for verifier in found if isinstance(verifier, RefusesModels)]
        if not all(told):
            return ""
        return f"no engine here computes it ({'; '.join(told) or 'none is for safetensors'})"

    return obstacle


def _enabled(model: ServedModel) -> bool:
    return _config().for_model(model.short).speculation.enabled


def _config() -> Config:
    try:
        return load_or_last_good()
    except ConfigError:  # it was never good; the command has said so
        return Config()


def _state() -> Path | None:
    try:
        return state_dir()
    except ConfigError:
        return None
