"""The verifier of a name, or what to do about its absence."""

from __future__ import annotations

from pilotfish.daemon.config.types import ENGINES
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Verifier


def chosen_verifier(registry: Registry, name: str) -> Verifier:
    """The verifier `name`. Raises EngineError with the remedy when there is none."""
    verifier = registry.verifier(name)
    if verifier is None:
        remedy = ENGINES.get(name)
        raise EngineError(f"no verifier is named {name!r}" + (f"; install it with: {remedy}" if remedy else ""))
    return verifier
