"""A launch with a projector: text is the runner's, what holds images or sound goes to the stock server beside it.

Whoever sends images writes a marker where they stand in the text, and asks `/props` which one. It is new in every
process, as stock's, and handed to the stock server beside, so that both mean the same.
"""

from __future__ import annotations

import functools
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.runner.floor import StockServer
from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.gguf import read_metadata

MARKER_VARIABLE = "LLAMA_MEDIA_MARKER"  # of llama-server's environment


@dataclass(frozen=True, slots=True)
class Projector:
    """What a launch takes besides text. `marker` stands for an image or a sound in a prompt; empty: neither."""

    vision: bool = False
    audio: bool = False
    marker: str = ""

    @property
    def modalities(self) -> list[str]:
        """As `/v1/models` lists them."""
        return ["text", *(["image"] if self.vision else []), *(["audio"] if self.audio else [])]


TEXT_ONLY = Projector()


def projector_of(path: Path | None) -> Projector:
    """What the projector in `path` takes; nothing where there is none, or it cannot be read."""
    if path is None:
        return TEXT_ONLY
    try:
        values = read_metadata(path).values
    except BrokenModel:  # the stock server will say so
        return TEXT_ONLY
    vision, audio = (bool(values.get(f"clip.has_{what}_encoder")) for what in ("vision", "audio"))
    return Projector(vision, audio, media_marker())


@functools.cache
def media_marker() -> str:
    """This process's."""
    return os.environ.get(MARKER_VARIABLE) or f"<__media_{secrets.token_hex(16)}__>"


def with_marker(stock: StockServer | None, projector: Path | None) -> StockServer | None:
    """The same server, which knows this process's marker if there is a projector."""
    if stock is None or projector is None:
        return stock
    return replace(stock, environment={**stock.environment, MARKER_VARIABLE: media_marker()})
