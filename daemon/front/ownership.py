"""Which models are computed here and which are left to the Ollama behind this server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from pilotfish.daemon.front.catalog import Catalog, ServedModel
from pilotfish.daemon.front.computed_here import Obstacle, check_tensors, config_or_defaults
from pilotfish.daemon.front.settings import Upstream
from pilotfish.hooks.environment import switched_off
from pilotfish.hooks.errors import PilotfishError

log = logging.getLogger("pilotfish.front")

_AGAIN = 600.0  # seconds after which a model that could not be loaded here is tried once more


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
        """The model called `name`, if it is computed here.

        Raises BrokenModel, naming layer and tensor, for an MLX model whose tensors are not what its manifest says: no
        engine answers rightly with those.
        """
        try:
            model = await self._catalog.find(name)
            why = await asyncio.to_thread(self._why_left, model)
        except PilotfishError as error:
            log.debug("%r is left to the upstream: %s", name, error)
            return None
        why = why or await asyncio.to_thread(self._obstacle, model)
        self._tell(model, why)
        return None if why else model

    async def failed(self, model: ServedModel) -> None:
        """It could not be loaded: for a while it is the upstream's. Raises BrokenModel where its tensors are why."""
        await asyncio.to_thread(check_tensors, self._catalog.store, model)
        self._failed[model.manifest.digest] = self._clock()

    def _why_left(self, model: ServedModel) -> str:
        if switched_off("PILOTFISH") or not _enabled(model):
            return "it is switched off"
        since = self._failed.get(model.manifest.digest)
        if since is not None and self._clock() - since < _AGAIN:
            return "it could not be loaded here"
        if model.metadata is not None and not self._upstream.serve_gguf:
            return "GGUF models are the overlay's or stock's; serve_gguf is not set"
        _ = model.weights  # raises for what no runner here takes
        return ""

    def _tell(self, model: ServedModel, why: str) -> None:
        """One line in the log for each model, and another when that changes."""
        if self._told.get(model.manifest.digest) != why:
            self._told[model.manifest.digest] = why
            log.info("%s is %s", model.short, f"left to the upstream: {why}" if why else "computed here")


def _enabled(model: ServedModel) -> bool:
    return config_or_defaults().for_model(model.short).speculation.enabled
