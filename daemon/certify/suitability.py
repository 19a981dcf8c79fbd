"""What one build of an engine makes of one model, remembered until the weights or the build change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.manifests.remembered import Remembered, stamp_of

BOUND = 0.05  # nats; see docs/design.md


class Suitability:
    """Facts about `pin` on the builds `fingerprints` (by engine). A file that is not there has none."""

    def __init__(self, pin: TargetPin, fingerprints: Mapping[str, str], options: EngineOptions) -> None:
        self._path, self._fingerprints = pin.path, dict(fingerprints)
        self._remembered = Remembered(options.state_dir)

    def refusal(self, engine: str) -> str:
        """Why the engine's library does not take the model; empty when nothing speaks against it."""
        found = self._get(self._refused(engine))
        return found if isinstance(found, str) else ""

    def refuse(self, engine: str, why: str) -> None:
        """Remember that the library does not take the model."""
        self._put(self._refused(engine), why)

    def divergence(self, engine: str) -> float | None:
        """The mean KL divergence of the engine's rows from libllama's, in nats; None while it was not measured."""
        found = self._get(self._apart(engine))
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def diverges(self, engine: str, divergence: float) -> None:
        """Remember what was measured."""
        self._put(self._apart(engine), divergence)

    def _refused(self, engine: str) -> str:
        return f"refused by {engine} {self._fingerprints.get(engine)}"

    def _apart(self, engine: str) -> str:
        stock = self._fingerprints.get(STOCK_ENGINE)
        return f"divergence behind BOS of {engine} {self._fingerprints.get(engine)} from {stock}"

    def _get(self, fact: str) -> Any:
        try:
            return self._remembered.get(self._path, fact, stamp_of(self._path))
        except OSError:
            return None

    def _put(self, fact: str, value: Any) -> None:
        try:
            self._remembered.put(self._path, fact, stamp_of(self._path), value)
        except OSError:
            return


def too_far(divergence: float | None) -> str:
    """Why an engine with rows that far from libllama's is not offered; empty when it is near enough, or not known."""
    if divergence is None or divergence <= BOUND:  # not a number is too far
        return ""
    return f"its rows are not libllama's: mean KL divergence {divergence:.3f}, above {BOUND}"
