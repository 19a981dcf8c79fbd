"""Whether anything here computes a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ConfigError
from pilotfish.hooks.protocols import RefusesModels
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.pins import pin_manifest
from pilotfish.manifests.store import Store

Obstacle = Callable[[ServedModel], str]


class EnginesHere:
    """Says why no verifier here computes a model of `store`; empty when one does.

    Of MLX models the registered verifiers say it, each of which may refuse a model; a GGUF is left to its runner, which
    knows more. Asking blocks, and raises BrokenModel.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._registry: Registry | None = None

    def __call__(self, model: ServedModel) -> str:
        if model.tensors is None:
            return ""
        self._registry = registry = self._registry or Registry.load(config_or_defaults())
        pin = pin_manifest(self._store, model.manifest, _state(), verify=False)
        options = EngineOptions(state_dir=_state())
        found: list[object] = [registry.verifier(name) for name in registry.verifiers]
        # One that refuses nothing beforehand does not say that it takes safetensors.
        told = [verifier.unfit_for(pin, options) for verifier in found if isinstance(verifier, RefusesModels)]
        if not all(told):
            return ""
        return f"no engine here computes it ({'; '.join(told) or 'none is for safetensors'})"


def config_or_defaults() -> Config:
    """The config in force. Where it was never good the defaults hold; the command has said so."""
    try:
        return load_or_last_good()
    except ConfigError:
        return Config()


def _state() -> Path | None:
    try:
        return state_dir()
    except ConfigError:
        return None
