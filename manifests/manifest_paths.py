"""Models named by their manifest's own path: those of MLX have no other file that is theirs alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.hooks.errors import InvalidModelName
from pilotfish.manifests.names import ModelName

if TYPE_CHECKING:
    from pilotfish.manifests.manifest import Manifest
    from pilotfish.manifests.store import Store

_FOLDER = 3  # host, namespace and model lie between a manifest and the folder of all


def name_at(path: Path) -> ModelName | None:
    """The model whose manifest lies at this path; None for any other file. Looks at nothing but the path."""
    folders = path.absolute().parents
    if len(folders) <= _FOLDER + 1 or folders[_FOLDER].name != "manifests":
        return None
    try:
        return ModelName.from_path(path.absolute().relative_to(folders[_FOLDER]))
    except InvalidModelName:
        return None


def manifest_at(path: Path) -> tuple[Store, Manifest] | None:
    """That manifest, and its store. Raises BrokenModel or ModelNotFound."""
    from pilotfish.manifests.store import Store  # not for every launch

    if (name := name_at(path)) is None:
        return None
    store = Store(path.absolute().parents[_FOLDER + 1])
    return store, store.manifest(name)
