"""The engines that tests of verifiers run on, and what the fixtures around them are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pilotfish.plugins.verifiers.ik import IkVerifier
from pilotfish.plugins.verifiers.llama import LlamaVerifier

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

VERIFIERS = {"llama": LlamaVerifier, "ik": IkVerifier}
GEMMA = "gemma3-270m"  # for `quantized` and `engine_of`: the packaged Gemma 3, as it is

LoadEngine = Callable[..., "CellEngine"]
EngineOf = Callable[..., "CellEngine"]
