"""How many snapshots of a running state a context is made with: each is as large as the state."""

from __future__ import annotations

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import TargetPin
from pilotfish.plugins._cells.memory_layers import memory_layers

NUMBERS = (15, 11, 7, 3, 2, 1)  # for blocks of one more token
SHARE = 0.1  # of the weights' size is what the snapshots of a sequence may take
ANYWAY = 64 << 20  # bytes that they may take beside any weights


def snapshots_for(pin: TargetPin, width: int) -> int:
    """For blocks of up to `width` tokens, as far as they are small beside the weights; 0 where no layer has a state."""
    try:
        state = memory_layers(pin).state
    except BrokenModel:
        return 0
    room = max(ANYWAY, SHARE * sum(weight.size for weight in pin.weights))
    return next((n for n in NUMBERS if n < width and n * state <= room), 0) if state else 0
