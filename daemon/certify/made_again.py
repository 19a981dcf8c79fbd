"""How often a certificate that time cut short was made again: not for ever, on a machine that is always busy."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pilotfish.manifests.remembered import Remembered, stamp_of

MOST_TRIES = 3


class MadeAgain:
    """The tries of one certificate, by the key of its identity, with the weight file. Never raises."""

    def __init__(self, state_dir: Path | None, weights: Path, key: str) -> None:
        self._remembered = Remembered(state_dir)
        self._weights = weights
        self._fact = f"completed {key}"

    @property
    def tries(self) -> int:
        """How many ended so far, whatever came of them."""
        with contextlib.suppress(OSError):
            found = self._remembered.get(self._weights, self._fact, stamp_of(self._weights))
            return found if isinstance(found, int) else 0
        return MOST_TRIES

    @property
    def due(self) -> bool:
        """Whether another one may follow."""
        return self.tries < MOST_TRIES

    def tried(self) -> None:
        """One ended."""
        with contextlib.suppress(OSError):
            self._remembered.put(self._weights, self._fact, stamp_of(self._weights), self.tries + 1)
