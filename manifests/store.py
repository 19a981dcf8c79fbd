"""A model store on disk: `<root>/manifests/<host>/<namespace>/<model>/<tag>` and `<root>/blobs/sha256-<hex>`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import BrokenModel, ConfigError, InvalidModelName, ModelNotFound, WorldError
from pilotfish.manifests import manifest as media
from pilotfish.manifests.digests import Digest, blob_digest
from pilotfish.manifests.looking import is_dir, is_file
from pilotfish.manifests.manifest import Layer, Manifest, ModelConfig, parse_config, parse_manifest
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.writer import add_gguf

log = logging.getLogger("pilotfish.store")

SERVICE_ROOT = Path("/usr/share/ollama/.ollama/models")  # where Linux's service install keeps its models
MAX_MANIFEST_BYTES = 32 << 20  # an MLX model with ten thousand tensor layers needs about 2 MB
MAX_TEXT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file below `manifests/` that is no usable manifest, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Every manifest that can be read, by name, and what was skipped."""

    models: tuple[Manifest, ...]
    skipped: tuple[Skipped, ...]


def default_root() -> Path:
    """`$OLLAMA_MODELS` if set, else the first that exists of `~/.ollama/models` and the Linux service's folder.

    Ollama takes the variable as it stands: `~/x` is a folder named `~` wherever the server was started, which nobody
    else can know. Raises ConfigError for such a path, and for a user without a home folder where there is no service.
    """
    if named := variable("OLLAMA_MODELS"):
        if not Path(named).is_absolute():
            why = "is not absolute, and Ollama takes it from the folder it was started in"
            raise ConfigError(f"OLLAMA_MODELS: {named} {why}; write the whole path, here and for Ollama")
        return Path(named)
    try:
        home = Path.home() / ".ollama" / "models"
    except RuntimeError as error:
        if is_dir(SERVICE_ROOT):
            return SERVICE_ROOT
        why = "~/.ollama/models cannot be found, because this user has no home folder"
        raise ConfigError(f"{why}; set HOME, or OLLAMA_MODELS to the model store") from error
    return next((root for root in (home, SERVICE_ROOT) if is_dir(root / "manifests")), home)


class Store:
    """Reads one model store. Any part of the tree may be a symlink; nothing outside of it is named by a manifest,
    because names and digests are checked before they become paths."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def find(cls, root: Path | None = None) -> Store:
        """The store at `root`, else the one that Ollama uses on this machine; it need not be there yet.

        Raises ConfigError as `default_root` does, and WorldError for a store that is there and cannot be read.
        """
        store = cls(root or default_root())
        try:
            next(store.manifests.iterdir(), None)
        except FileNotFoundError:
            pass  # nothing was pulled yet
        except OSError as error:
            remedy = "run as the user who runs Ollama, or name another store with OLLAMA_MODELS"
            raise WorldError(f"{store.manifests} cannot be read: {error.strerror}; {remedy}") from error
        return store

    @classmethod
    def of_blob(cls, path: Path) -> Store | None:
        """The store that a blob's path lies in; None when it is no blob of any store."""
        for candidate in (path.absolute(), path.resolve()):
            if candidate.parent.name == "blobs" and blob_digest(candidate):
                return cls(candidate.parent.parent)
        return None

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    def models(self) -> Listing:
        """Everything in the store. A broken entry is skipped with a warning and a reason; the rest are listed."""
        models: list[Manifest] = []
        skipped: list[Skipped] = []
        for path in sorted(_files(self.manifests, 4, skipped)):
            try:
                name = ModelName.from_path(path.relative_to(self.manifests))
                models.append(self._read(name, path))
            except (BrokenModel, InvalidModelName, ModelNotFound) as error:
                log.warning("skipped %s: %s", path, error)
                skipped.append(Skipped(path, str(error)))
        return Listing(tuple(sorted(models, key=lambda m: m.name.short)), tuple(skipped))

    def manifest(self, name: ModelName | str) -> Manifest:
        """One model's manifest; the exact spelling wins, else one that differs only in case.

        Raises InvalidModelName, ModelNotFound or BrokenModel.
        """
        wanted = ModelName.parse(name) if isinstance(name, str) else name
        path = self.manifests / wanted.path
        if not is_file(path):
            wanted = self._folded(wanted)
            path = self.manifests / wanted.path
        return self._read(wanted, path)

    def blob_path(self, digest: Digest) -> Path:
        """Where a blob lies, whether it exists or not."""
        return self.blobs / digest.blob

    def blob(self, layer: Layer | Digest | str, model: ModelName | str = "") -> Path:
        """The path of a blob that is there and, given its layer, has the layer's size. Raises BrokenModel otherwise,
        naming the blob and `model`."""
        digest = layer.digest if isinstance(layer, Layer) else Digest.parse(layer) if isinstance(layer, str) else layer
        path = self.blob_path(digest)
        owner = f" of {model}" if model else ""
        try:
            size = path.stat().st_size
        except OSError as error:
            raise BrokenModel(f"blob {path}{owner} cannot be read ({error.strerror}); pull the model again") from error
        if isinstance(layer, Layer) and size != layer.size:
            raise BrokenModel(
                f"blob {path}{owner} has {size} bytes, its manifest says {layer.size}; pull the model again"
            )
        return path

    def config(self, manifest: Manifest) -> ModelConfig:
        """A model's config blob; the empty config when the manifest names none. Raises BrokenModel."""
        if manifest.config is None:
            return ModelConfig()
        return parse_config(self.read(manifest.config, manifest.name), f"config of {manifest.name}")

    def read(self, layer: Layer, model: ModelName | str = "") -> bytes:
        """The bytes of a small layer (text or JSON, at most 16 MiB). Raises BrokenModel."""
        path = self.blob(layer, model)
        if layer.size > MAX_TEXT_BYTES:
            raise BrokenModel(f"blob {path} of {model} has {layer.size} bytes, too many for text; pull the model again")
        try:
            return _read_bounded(path, MAX_TEXT_BYTES)
        except OSError as error:
            raise BrokenModel(f"blob {path} of {model} cannot be read ({error.strerror}); check its owner") from error

    def text(self, manifest: Manifest, *media_types: str) -> str | None:
        """The text of the last layer of these types (template, system, ...); None when there is none."""
        layer = manifest.last(*media_types)
        return None if layer is None else self.read(layer, manifest.name).decode("utf-8", "replace")

    def params(self, manifest: Manifest) -> Mapping[str, Any]:
        """The model's own options, by Ollama's names. Raises BrokenModel when the layer is no JSON object."""
        text = self.text(manifest, media.PARAMS)
        try:
            params = json.loads(text) if text else {}
        except (ValueError, RecursionError) as error:
            raise BrokenModel(f"params of {manifest.name} are not JSON ({error}); create the model again") from error
        if not isinstance(params, dict):
            raise BrokenModel(f"params of {manifest.name} are not a JSON object; create the model again")
        return params

    def add_gguf(
        self,
        name: ModelName | str,
        gguf_path: Path,
        *,
        template: str | None = None,
        system: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Put a GGUF file into the store as Ollama would, by hard link where possible; see `writer.add_gguf`."""
        wanted = ModelName.parse(name) if isinstance(name, str) else name
        add_gguf(self.root, wanted, gguf_path, template=template, system=system, params=params)
        return self.manifest(wanted)

    def _folded(self, wanted: ModelName) -> ModelName:
        for path in sorted(_files(self.manifests, 4, [])):
            try:
                name = ModelName.from_path(path.relative_to(self.manifests))
            except InvalidModelName:
                continue
            if name.folded == wanted.folded:
                return name
        raise ModelNotFound(f"model {wanted.short!r} not found in {self.root}; get it with: ollama pull {wanted.short}")

    def _read(self, name: ModelName, path: Path) -> Manifest:
        try:
            data = _read_bounded(path, MAX_MANIFEST_BYTES)
            modified = path.stat().st_mtime
        except FileNotFoundError as error:  # removed between the look and the read, or a dangling symlink
            raise ModelNotFound(f"model {name.short!r} is gone from {path}; get it with: ollama pull {name}") from error
        except OSError as error:
            raise BrokenModel(f"manifest of {name} ({path}) cannot be read: {error.strerror}") from error
        return parse_manifest(data, name, path, modified)


def _files(folder: Path, depth: int, skipped: list[Skipped]) -> Iterator[Path]:
    """Everything that is no folder exactly `depth` levels below `folder`, symlinks followed."""
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("skipped %s: %s", folder, error.strerror)
        skipped.append(Skipped(folder, f"cannot be listed: {error.strerror}"))
        return
    for entry in entries:
        if depth > 1 and is_dir(entry):
            yield from _files(entry, depth - 1, skipped)
        elif depth == 1 and not is_dir(entry) and not entry.name.startswith("."):
            yield entry


def _read_bounded(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise BrokenModel(f"{path} is larger than {limit} bytes; pull the model again")
    return data
