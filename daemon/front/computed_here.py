"""Whether anything here computes a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, ConfigError, PilotfishError
from pilotfish.hooks.protocols import RefusesModels
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.pins import pin_manifest
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_layers import TensorLayers

_PATIENCE = 120.0  # seconds

Obstacle = Callable[[ServedModel], str]


class EnginesHere:
    """Says why no verifier here computes a model of `store`; empty when one does.

    Of MLX models the registered verifiers say it, each of which may refuse a model; a GGUF is left to its runner, which
    knows more. They are asked in a process of their own, once for each manifest: to answer, one may load its library.
    A broken model is looked at each time, since a pull may have mended it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: dict[str, str] = {}  # by the manifest's digest

    def __call__(self, model: ServedModel) -> str:
        """Blocks for as long as verifiers take to be imported. Raises BrokenModel, naming layer and tensor."""
        if model.tensors is None:
            return ""
        digest = model.manifest.digest
        if digest not in self._told:
            self._told[digest] = self._ask(model)
        return self._told[digest]

    def _ask(self, model: ServedModel) -> str:
        command = [sys.executable, "-m", __name__, str(self._store.root), model.name.full]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=True
            )
            said = json.loads(done.stdout.splitlines()[-1])
            why, broken = str(said["why"]), bool(said["broken"])
        except subprocess.CalledProcessError as error:
            return f"the engines here cannot be asked: {error.stderr.strip()[-500:]}"
        except (OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
            return f"the engines here cannot be asked: {error}"
        if broken:
            raise BrokenModel(why)
        return why


def why_not(store: Store, name: str) -> str:
    """Why no verifier here computes an MLX model of `store`; empty when one does. Raises PilotfishError."""
    registry = Registry.load(config_or_defaults())
    pin = pin_manifest(store, store.manifest(name), _state(), verify=False)
    options = EngineOptions(state_dir=_state())
    found: list[object] = [registry.verifier(name) for name in registry.verifiers]
    # One that refuses nothing beforehand does not say that it takes safetensors.
    told = [verifier.unfit_for(pin, options) for verifier in found if isinstance(verifier, RefusesModels)]
    if not all(told):
        return ""
    return f"no engine here computes it ({'; '.join(told) or 'none is for safetensors'})"


def check_tensors(store: Store, model: ServedModel) -> None:
    """Look at every blob of an MLX model that could not be loaded. Blocks; what was hashed before is not hashed again.

    Raises BrokenModel, naming layer and tensor.
    """
    if model.tensors is not None:
        TensorLayers.of(model.manifest, store).verify(_state())


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


def main(root: str, name: str) -> None:
    """Answer on stdout; how a process ends that has loaded an engine's library is not waited for."""
    broken = False
    try:
        why = why_not(Store(Path(root)), name)
    except PilotfishError as error:
        why, broken = str(error), isinstance(error, BrokenModel)
    sys.stdout.write(json.dumps({"why": why, "broken": broken}) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
