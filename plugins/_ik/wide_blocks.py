"""How many tokens ik_llama.cpp may compute at once: for two number formats its kernels for wide blocks are wrong.

From 32 tokens on, products with Q4_1 and Q5_1 weights come out far off: after a prompt that was read in one block the
rows' mean KL divergence from llama.cpp's was 0.2 to 1.2, instead of 0.005 (docs/lab-notes.md). Up to 31 they are right,
and 31 tokens still cost less than llama.cpp's wide blocks.
"""

from __future__ import annotations

from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.gguf import read_metadata

WRONG_WHEN_WIDE = frozenset({"Q4_1", "Q5_1"})
WIDEST_RIGHT = 31


def at_once(pin: TargetPin, wanted: int) -> int:
    """`wanted` tokens, or as many as are computed rightly with the weights of `pin`. Raises BrokenModel."""
    affected = any(WRONG_WHEN_WIDE & read_metadata(weight.path).matrix_types.keys() for weight in pin.weights)
    return min(wanted, WIDEST_RIGHT) if affected else wanted
