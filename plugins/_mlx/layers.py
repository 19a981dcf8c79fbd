"""From a pin to the tensors in its store."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.assistant import assistant_of
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_tokenizer import tokenizer_file
from pilotfish.plugins._vocabularies import layers_vocabulary

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


def bundled_layers(pin: TargetPin) -> TensorLayers:
    """The drafter that a model brings along, where it is a model of its own.

    Raises as `layers_of`, and EngineError, with the evidence, where it is none.
    """
    draft = layers_of(pin).draft
    if draft is None:
        raise EngineError(f"{pin.name} brings no drafter along; name a model of its own, without `bundled`")
    store = Store.of_blob(pin.path)
    said = store.config(draft.manifest).draft if store else None
    found = assistant_of(draft.names, "", said.architecture if said else "")
    if found is None or not found.self_contained:
        raise EngineError(
            f"the drafter in {pin.name} cannot draft by itself: {found.summary if found else 'it is empty'}"
        )
    return draft


def vocabulary_beside(layers: TensorLayers, owner: Callable[[], TargetPin]) -> Vocabulary:
    """A model's own vocabulary; a bundled drafter without one has its owner's. Raises BrokenModel."""
    return layers_vocabulary(layers if tokenizer_file(layers) else layers_of(owner()))
