"""A model on its way into memory: the thread that loads it, and what is known of it once it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pilotfish.daemon.runner.engine_thread import EngineThread, Generates

if TYPE_CHECKING:
    from pilotfish.daemon.runner.model_card import ModelCard

Load = Callable[[], "tuple[Generates[Any], ModelCard]"]


class ModelLoad:
    """A load that can begin before there is a server. `card` is set before the engine's generator is."""

    def __init__(self, load: Load) -> None:
        """`load` runs on the engine's thread."""
        self.card: ModelCard | None = None
        self.engine = EngineThread(self._generator)
        self._load = load

    def _generator(self) -> Generates[Any]:
        generator, self.card = self._load()
        return generator
