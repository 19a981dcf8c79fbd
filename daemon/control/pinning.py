"""Pins follow the model store: a manifest that appears or changes is pinned again, and observers are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

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

    def changed(self) -> list[ModelName]:
        """The models whose manifest is new or another since the last call."""
        before, self._stamps = self._stamps, self._look()
        return self._names(path for path, stamp in self._stamps.items() if before.get(path) != stamp)

    def _look(self) -> dict[Path, Stamp]:
        return stamps_of(path for path in files_below(self.store.manifests, _DEPTH) if not path.name.startswith("."))

    def _names(self, paths: Iterable[Path]) -> list[ModelName]:
        names = []
        for path in paths:
            try:
                names.append(ModelName.from_path(path.relative_to(self.store.manifests)))
            except InvalidModelName as error:
                log.debug("%s: %s", path, error)
        return names


def pin_again(store: Store, name: ModelName, state_dir: Path, notify: Callable[[TargetPin], None]) -> None:
    """Pin a model and tell `notify`. Blocks: a new weight file is hashed.

    A model that cannot be pinned is a line in the log.
    """
    from pilotfish.manifests.pins import pin_model  # imports gguf and numpy, 200 ms that a start can do without

    try:
        pin = pin_model(store, name, state_dir)
    except PilotfishError as error:
        log.warning("%s: not pinned: %s", name, error)
        return
    notify(pin)
    log.info("%s: pinned, manifest %s", name, (pin.manifest_digest or "")[:12])
