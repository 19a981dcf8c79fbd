"""What drafters with a draft model have in common, whatever engine computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import DraftSession, Vocabulary
from pilotfish.hooks.types import TargetPin
from pilotfish.plugins._options import DrafterTable
from pilotfish.plugins.drafters._model_session import MIN_CONFIDENCE, DraftCache


class HeldModel(Protocol):
    """What there is of a model while it is loaded."""

    @property
    def cache(self) -> DraftCache: ...

    @property
    def vocabulary(self) -> Vocabulary: ...

    def close(self) -> None:
        """Free it, once no call to a session is running."""
        ...


class ModelDrafter:
    """Half of a `LoadableDrafter`: whoever inherits it says what the model takes, and loads it.

    Sessions may overlap; they share one cache, and the one that comes back feeds again.
    """

    def __init__(self, table: DrafterTable, what: str) -> None:
        """`what` says which models there can be, for a table that names none."""
        self.model = table.text("model", what)
        self._context = table.integer("context", 0, 0, 1 << 24)
        self._min_confidence = table.number("min_confidence", MIN_CONFIDENCE, 0, 1)
        self._loaded: HeldModel | None = None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's own; None while it is not loaded."""
        return self._loaded.vocabulary if self._loaded else None

    def unload(self) -> None:
        """Free the model, once no call to a session is running."""
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.close()

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        """A session on `prompt`, fed as far as no earlier session left it. Raises EngineError when not loaded."""
        loaded = self._loaded
        if loaded is None:
            raise EngineError(f"the draft model {self.model} is not loaded; load it before opening a session")
        return loaded.cache.open(prompt, min_confidence=self._min_confidence)
