"""How a runner's life ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """How serving ended: why it failed before the model was ready, if it did, and whether the engine's thread ended.

    `lost` says why no request could be answered any more, if that was the reason.
    """

    failure: str = ""
    stopped: bool = True
    lost: str = ""
