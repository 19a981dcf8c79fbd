"""Which models the lab works on: a model of a store, a bare file, or a requantized variant of either."""

from __future__ import annotations

from pathlib import Path

from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.lab.demonstration import MODEL, demo_weights
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, EngineError, ModelNotFound
from pilotfish.hooks.protocols import Requantizes
from pilotfish.hooks.types import EngineSetting, Lane, Parity
from pilotfish.manifests.manifest import MODEL as MODEL_LAYER
from pilotfish.manifests.store import Store

FULL = ("Q4_0", "Q4_1", "Q8_0", "Q4_K_M", "Q6_K")


def stock_lane(engine: str) -> Lane:
    """What differs: the engine as it comes, in every width."""
    return Lane("stock settings, every width", tuple(range(1, 17)), EngineSetting(engine=engine), parity=Parity.NONE)


def model_path(name: str, root: Path | None = None) -> Path:
    """The GGUF of `name`: a file, a model of the store, or the demo's own model where the store has none."""
    if name.endswith(".gguf") and Path(name).is_file():
        return Path(name)
    store = Store.find(root)
    try:
        layers = store.manifest(name).of_type(MODEL_LAYER)
    except ModelNotFound:
        if name == MODEL and root is None:
            return demo_weights()
        raise
    if not layers:
        raise BrokenModel(f"{name} has no GGUF weights; only GGUF models can be loaded here")
    return store.blob(layers[0], name)


def variant(source: Path, kind: str) -> Path:
    """`source` requantized to `kind`, made once in the cache folder."""
    stat = source.stat()
    path = cache_dir() / "variants" / f"{source.stem[:40]}-{stat.st_size:x}-{stat.st_mtime_ns:x}.{kind}.gguf"
    if not path.is_file():
        verifier = Registry.load().verifier("llama")
        if verifier is None or not isinstance(verifier, Requantizes):
            raise EngineError("requantizing needs libllama: pip install 'pilotfish[llama]'")
        verifier.requantize(source, path, kind)
    return path
