"""From a pin to the tensors in its store."""

from __future__ import annotations

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_layers import TensorLayers

FORMAT = "safetensors"


def layers_of(pin: TargetPin) -> TensorLayers:
    """The pin's tensors. Raises EngineError for another kind of model, BrokenModel, and ModelNotFound."""
    if pin.format != FORMAT:
        raise EngineError(f"{pin.name} is a {pin.format} model, and MLX computes {FORMAT} models; leave it to libllama")
    store = Store.of_blob(pin.path)
    if store is None or pin.manifest_digest is None:
        raise EngineError(f"{pin.path} is in no model store; put it into one with: pilotfish import-mlx")
    manifest = store.manifest(pin.name)
    if manifest.digest != pin.manifest_digest:
        raise BrokenModel(f"{pin.name} was changed since it was pinned; load it again")
    return TensorLayers.of(manifest, store)
