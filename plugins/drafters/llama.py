"""A small GGUF model that drafts, through libllama, beside the target.

Its table::

    [drafters.llama]
    model = "smollm2:135m"   # a name in the model store, or the path of a .gguf file
    context = 0              # tokens; 0: as many as the target has
    threads = 0              # 0: as many as the target has, which waits meanwhile
    gpu_layers = -1          # -1: as the target
    min_confidence = 0.4     # a proposal ends before its own probability falls below this
    cache_type_k = ""        # bf16, f16, q8_0, ...; empty: as the target
    cache_type_v = ""

Importing this module loads nothing; libllama comes in with the first footprint or load.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import DrafterFactory, Host
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin
from pilotfish.plugins._options import DrafterTable
from pilotfish.plugins.drafters._model_drafter import ModelDrafter

KEYS = ("model", "context", "threads", "gpu_layers", "min_confidence", "cache_type_k", "cache_type_v")
CACHE_TYPES = ("", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


class LlamaDrafter(ModelDrafter):
    """A `LoadableDrafter`."""

    name = "llama"
    placement = Placement.ENGINE_THREAD

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = DrafterTable("llama", config, KEYS)
        super().__init__(options, "the name of a small model, or the path of a .gguf file")
        self._threads = options.integer("threads", 0, 0, 1024)
        self._gpu_layers = options.integer("gpu_layers", -1, -1, 1 << 16)
        self._cache_type_k = options.choice("cache_type_k", "", CACHE_TYPES)
        self._cache_type_v = options.choice("cache_type_v", "", CACHE_TYPES)

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint:
        """The file's size, and its cache and working buffers for the context. Raises ModelNotFound or BrokenModel."""
        pin = host.pin(self.model)
        _need_libllama(pin.name)
        from pilotfish.plugins._llama.footprint import footprint

        return footprint(pin, self._options(options), windows=False)  # any prefix of a history is kept

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Load the model; what was loaded before is freed first. Raises ModelNotFound, BrokenModel or EngineError."""
        self.unload()
        pin = host.pin(self.model)
        _need_libllama(pin.name)
        from pilotfish.plugins.drafters._llama_draft import load

        self._loaded = load(pin, self._options(options))

    def _options(self, target: EngineOptions) -> EngineOptions:
        """The target's options with what the table says instead."""
        return replace(
            target,
            n_ctx=self._context or target.n_ctx,
            threads=self._threads or target.threads,
            gpu_layers=target.gpu_layers if self._gpu_layers < 0 else self._gpu_layers,
            cache_type_k=self._cache_type_k or target.cache_type_k,
            cache_type_v=self._cache_type_v or target.cache_type_v,
        )


def _need_libllama(model: str) -> None:
    try:
        importlib.import_module("pilotfish.plugins._llama.library")
    except ImportError as error:
        raise EngineError(
            f"{model}: libllama cannot be loaded ({error}); install it with: pip install 'pilotfish[llama]'"
        ) from error


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(LlamaDrafter.name, LlamaDrafter)
