"""How much memory a GGUF will take under libllama."""

from __future__ import annotations

from pilotfish.hooks.types import EngineOptions, Footprint, TargetPin
from pilotfish.plugins._cells.footprint import footprint_in
from pilotfish.plugins._llama.devices import device_for
from pilotfish.plugins._llama.model import exact_setting


def footprint(pin: TargetPin, options: EngineOptions) -> Footprint:
    """Bytes for the weights, and for `options.slots` sequences of `options.n_ctx` tokens. Raises BrokenModel."""
    return footprint_in(pin, exact_setting(options), options, device_for(options.gpu_layers))
