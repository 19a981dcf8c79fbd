"""A small model that drafts through MLX: Metal on Apple silicon, CUDA or a CPU elsewhere.

Its table::

    [drafters.mlx]
    model = "~/models/SmolLM2-135M-4bit"   # an MLX folder (safetensors), a .gguf file, or a name in the model store
    bundled = false                        # true: the drafter that this model of the store brings along
    context = 0                            # tokens; 0: as many as the target has
    device = ""                            # cpu or gpu; empty: MLX's own choice
    min_confidence = 0.4                   # a proposal ends before its own probability falls below this

A folder, or an MLX model in the store, may hold anything that mlx-lm runs and whose cache can be trimmed. A bundled
drafter is one where it is a model of its own. Of a GGUF, llama, qwen2 and qwen3 are built,
best in Q4_0, Q4_1 or Q8_0, which MLX computes with as they are; other formats are turned into floats. Importing this
module loads nothing: MLX comes in with the first footprint or load.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import DrafterFactory, Host, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.plugins._mlx.layers import FORMAT, bundled_layers, layers_of, vocabulary_beside
from pilotfish.plugins._open_files import open_files_kept
from pilotfish.plugins._options import DrafterTable
from pilotfish.plugins._vocabularies import load_vocabulary
from pilotfish.plugins.drafters._drafter_thread import DrafterThread
from pilotfish.plugins.drafters._gguf_shape import read_shape
from pilotfish.plugins.drafters._gguf_vocabulary import GGUFVocabulary
from pilotfish.plugins.drafters._mlx_sizes import Sizes, sizes_of_folder, sizes_of_gguf, sizes_of_layers
from pilotfish.plugins.drafters._model_drafter import ModelDrafter
from pilotfish.plugins.drafters._model_session import DraftCache, LoadedModel

KEYS = ("model", "bundled", "context", "device", "min_confidence")

_thread = DrafterThread("mlx")


class MLXDrafter(ModelDrafter):
    """A `LoadableDrafter`."""

    name = "mlx"
    placement = Placement.PROCESS

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = DrafterTable(self.name, config, KEYS)
        super().__init__(options, "an MLX folder, a .gguf file or a name in the model store")
        self._device = options.choice("device", "", ("", "cpu", "gpu"))
        self._bundled = options.flag("bundled", False)

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint:
        """Weights as MLX will hold them, and the cache. Raises ModelNotFound, BrokenModel or EngineError."""
        devices = _module("_mlx_device")
        where = devices.device_of(self._device)
        float_size = devices.float_type(where).size
        sizes = self._sizes(self._found(host), float_size)
        n_ctx = self._context or options.n_ctx
        return Footprint(sizes.weights, sizes.cache(n_ctx, float_size), devices.memory_of(where))

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Load and warm up; what was loaded before is freed first. Raises ModelNotFound, BrokenModel or EngineError."""
        self.unload()
        engine = _module("_mlx_model")
        found = self._found(host)
        n_ctx = self._context or options.n_ctx
        n_ctx = min(n_ctx, self._sizes(found, 0).trained or n_ctx)
        vocabulary: Vocabulary
        if isinstance(found, TensorLayers):
            vocabulary = vocabulary_beside(found, lambda: host.pin(self.model))
            built, where = _thread.run(engine.load_layers, found, self.model, self._device)
        else:
            vocabulary = load_vocabulary(found) if found.is_dir() else GGUFVocabulary(host.pin(self.model))
            built, where = _thread.run(engine.load, found, self._device)
        model = engine.MLXModel(self.model, built, where, _thread, n_ctx, vocabulary.pin.n_vocab)
        model.warm_up()
        self._loaded = LoadedModel(DraftCache(model), vocabulary)

    def unload(self) -> None:
        """Free the model, once no call to a session is running."""
        was_loaded = self._loaded is not None
        super().unload()
        if was_loaded:
            _thread.run(_module("_mlx_model").free)

    def _found(self, host: Host) -> Path | TensorLayers:
        """The model's folder or GGUF file, or its tensors in the store. Raises as `load`."""
        path = Path(self.model).expanduser()
        if path.is_dir():
            return path
        pin = host.pin(self.model)
        if self._bundled:
            return bundled_layers(pin)
        return layers_of(pin) if pin.format == FORMAT else pin.path

    def _sizes(self, found: Path | TensorLayers, float_size: int) -> Sizes:
        if isinstance(found, TensorLayers):
            return sizes_of_layers(found, float_size)
        return sizes_of_folder(found) if found.is_dir() else sizes_of_gguf(read_shape(found), float_size)


def _module(name: str) -> Any:
    """A module beside this one that needs MLX. Raises EngineError naming what to install."""
    try:
        with open_files_kept():
            return importlib.import_module(f"pilotfish.plugins.drafters.{name}")
    except ImportError as error:
        raise EngineError(
            f"the mlx drafter needs mlx and mlx-lm ({error}); install them with: pip install 'pilotfish[mlx]'"
        ) from error


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(MLXDrafter.name, MLXDrafter)
