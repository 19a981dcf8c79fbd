"""Pins follow the model store: a manifest that appears or changes is pinned again, and observers are told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pilotfish.daemon.control.stamps import Stamp, files_below, stamps_of
from pilotfish.hooks.errors import InvalidModelName, PilotfishError
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.daemon")

_DEPTH = 4  # host, namespace, model, tag


class Manifests:
    """The manifests of a store as they were at the last look. Blocks on the disk: for a thread, one call at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._stamps = self._look()

    def changed(self) -> tuple[list[ModelName], list[ModelName]]:
        """The models whose manifest is new or another since the last call, and those whose manifest is gone."""
        before, self._stamps = self._stamps, self._look()
        new = [path for path, stamp in self._stamps.items() if before.get(path) != stamp]
        return self._names(new), self._names(before.keys() - self._stamps.keys())

    def _look(self) -> dict[Path, Stamp]:
        return stamps_of(path for path in files_below(self.store.manifests, _DEPTH) if not path.name.startswith("."))

    def _names(self, paths: Any) -> list[ModelName]:
        names = []
        for path in paths:
            try:
                names.append(ModelName.from_path(path.relative_to(self.store.manifests)))
            except InvalidModelName as error:
                log.debug("%s: %s", path, error)
        return names


def pin_again(store: Store, name: ModelName, state_dir: Path, notify: Callable[[TargetPin], None]) -> dict[str, Any]:
    """Pin a model and tell `notify`; what to show of it. Blocks: a new weight file is hashed.

    A model that cannot be pinned is reported, not raised.
    """
    from pilotfish.manifests.pins import pin_model  # imports gguf and numpy, 200 ms that a start can do without

    started = time.time()
    try:
        pin = pin_model(store, name, state_dir)
    except PilotfishError as error:
        log.warning("%s: not pinned: %s", name, error)
        return {"error": str(error), "time": started}
    notify(pin)
    log.info("%s: pinned, manifest %s", name, (pin.manifest_digest or "")[:12])
    return {"manifest": pin.manifest_digest, "weights": [weight.digest for weight in pin.weights], "time": started}
