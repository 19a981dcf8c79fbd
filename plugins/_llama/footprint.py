"""How much memory a GGUF will take under libllama."""

from __future__ import annotations

from pilotfish.hooks.types import EngineOptions, Footprint, TargetPin
from pilotfish.plugins._cells.footprint import footprint_in
from pilotfish.plugins._cells.snapshots import snapshots_for
from pilotfish.plugins._llama.devices import device_for
from pilotfish.plugins._llama.model import BLOCK_ROOM, exact_setting

FAR = "RPC"  # the memory of other machines, as ggml's names of devices there begin


def footprint(pin: TargetPin, options: EngineOptions, *, windows: bool = True) -> Footprint:
    """Bytes for the weights, and for `options.slots` sequences of `options.n_ctx` tokens. Raises BrokenModel.

    Without `windows` layers that have one keep every cell as well.
    """
    setting = exact_setting(options)
    device = FAR if options.far_ends else device_for(options.gpu_layers)
    return footprint_in(pin, setting, options, device, windows=windows, snapshots=snapshots_for(pin, BLOCK_ROOM))
