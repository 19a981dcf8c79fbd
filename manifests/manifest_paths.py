"""Models named by their manifest's own path: those of MLX have no other file that is theirs alone."""

from __future__ import annotations

from pathlib import Path

from pilotfish.hooks.errors import InvalidModelName
from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

_LEVELS = 4  # host, namespace, model and tag, below `manifests`


def manifest_at(path: Path) -> tuple[Store, Manifest] | None:
    """The manifest at this path, and its store; None for any other file. Raises BrokenModel or ModelNotFound."""
    folders = path.absolute().parents
    if len(folders) <= _LEVELS or folders[_LEVELS - 1].name != "manifests":
        return None
    try:
        name = ModelName.from_path(path.absolute().relative_to(folders[_LEVELS - 1]))
    except InvalidModelName:
        return None
    store = Store(folders[_LEVELS])
    return store, store.manifest(name)
