"""A small GGUF that drafts through tinygrad, on any device that tinygrad drives.

Its table::

    [drafters.tinygrad]
    model = "smollm2:135m"   # a name in the model store, or the path of a .gguf file
    device = ""              # CPU, METAL, NV, AMD, CUDA, CL, ...; empty: $DEV, or the first that tinygrad can open
    context = 0              # tokens; 0: as many as the target has
    block = 32               # tokens of the longest forward; with 1, half as much is compiled and prompts take longer
    min_confidence = 0.4     # a proposal ends before its own probability falls below this

NV, AMD, QCOM and DSP are driven by tinygrad itself and stand only one process: they are leased before they are touched,
and until the process ends, because tinygrad closes none before. Kernels are compiled while loading, which takes about a
minute the first time; tinygrad keeps them on disk. The CPU device needs clang. Importing this module loads nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import DrafterFactory, Host
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin
from pilotfish.plugins._options import DrafterTable
from pilotfish.plugins.drafters._gguf_shape import ModelShape, read_shape
from pilotfish.plugins.drafters._gguf_vocabulary import GGUFVocabulary
from pilotfish.plugins.drafters._model_drafter import ModelDrafter
from pilotfish.plugins.drafters._model_session import DraftCache, LoadedModel
from pilotfish.plugins.drafters._tinygrad_devices import EXCLUSIVE, SHARED, footprint

KEYS = ("model", "device", "context", "block", "min_confidence")


class TinygradDrafter(ModelDrafter):
    """A `LoadableDrafter`."""

    name = "tinygrad"
    placement = Placement.PROCESS

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = DrafterTable(self.name, config, KEYS)
        super().__init__(options, "a name in the model store or the path of a .gguf file")
        self._device = options.choice("device", "", ("", *map(str.lower, SHARED + EXCLUSIVE))).upper()
        self._block = options.integer("block", 32, 1, 512)

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint:
        """Weights, cache and working buffers; opens no device, so one that is not named counts as the system's memory.

        Raises ModelNotFound, BrokenModel or EngineError.
        """
        pin = host.pin(self.model)
        _need_tinygrad()
        device = self._device or os.environ.get("DEV", "").split("+")[-1].split(":")[0].upper() or "CPU"
        n_ctx = self._context or options.n_ctx
        return footprint(_shape(pin), n_ctx, pin.tokenizer.n_vocab, min(self._block, n_ctx), device)

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Lease and open the device, load, compile; what was loaded before is freed first.

        Raises ModelNotFound, BrokenModel, DeviceBusy or EngineError.
        """
        self.unload()
        pin = host.pin(self.model)
        engine = _engine()
        _shape(pin)
        n_ctx = self._context or options.n_ctx
        sizes = n_ctx, pin.tokenizer.n_vocab, min(self._block, n_ctx)
        model = engine.thread.run(engine.load, pin.path, self._device, host, *sizes)
        self._loaded = LoadedModel(DraftCache(model), GGUFVocabulary(pin))


def _engine() -> Any:
    """The module that needs tinygrad. Raises EngineError naming what to install."""
    _need_tinygrad()
    try:
        return importlib.import_module("pilotfish.plugins.drafters._tinygrad_model")
    except ImportError as error:
        raise _missing(error) from error


def _need_tinygrad() -> None:
    """Whether it is installed, without importing it."""
    if importlib.util.find_spec("tinygrad") is None:
        raise _missing("it is not installed")


def _missing(reason: object) -> EngineError:
    return EngineError(
        f"the tinygrad drafter needs tinygrad 0.13 ({reason}); install it with: pip install 'pilotfish[tinygrad]'"
    )


def _shape(pin: TargetPin) -> ModelShape:
    """Raises BrokenModel, or EngineError for a model that cannot roll back."""
    shape = read_shape(pin.path)
    if shape.is_recurrent:
        raise EngineError(
            f"{pin.name} cannot draft: its memory (recurrent or hybrid) cannot take back rejected tokens; "
            "choose another model for drafters.tinygrad.model"
        )
    return shape


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(TinygradDrafter.name, TinygradDrafter)
