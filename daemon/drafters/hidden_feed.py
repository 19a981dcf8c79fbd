"""Handing the target's activations to a drafter that asks for them, and why that may be refused."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.hooks.declared import hidden_layers_of, placement_of, vocabulary_of
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.hidden import GivesHidden, HasHidden, HiddenShape, TakesHidden
from pilotfish.hooks.protocols import Drafter, DraftSession, TargetEngine
from pilotfish.hooks.types import Placement

_BESIDE_THE_ENGINE = (Placement.INLINE, Placement.ENGINE_THREAD)


def hidden_shape_of(engine: TargetEngine) -> HiddenShape | None:
    """What activations an engine can tell; None for one that tells none."""
    return engine.hidden_shape if isinstance(engine, HasHidden) else None


def hidden_refusal(drafter: Drafter, shape: HiddenShape | None, engine: str) -> str:
    """Why a drafter that asks for activations gets none of `engine`; empty when it gets them, or asks for none.

    Raises ProtocolViolation for a drafter that asks for what cannot be.
    """
    layers = hidden_layers_of(drafter)
    if not layers:
        return ""
    asks = f"{drafter.name} asks for the target's activations (layers {', '.join(map(str, layers))})"
    if shape is None:
        return f"{asks}, and the engine {engine} does not tell them; choose another drafter"
    if layers[-1] > shape.layers:
        return f"{asks}, and the target has {shape.layers} layers; it was made for another model"
    if placement_of(drafter) not in _BESIDE_THE_ENGINE:
        return f"{asks} from another thread than the engine's; its placement must be INLINE or ENGINE_THREAD"
    if vocabulary_of(drafter) is not None:
        return f"{asks} and has a vocabulary of its own; activations are of the target's tokens"
    return ""


class HiddenFeed:
    """What a drafter's session was given of the activations of one target session."""

    def __init__(self, source: GivesHidden, layers: Sequence[int]) -> None:
        source.keep_hidden(layers)
        self._source, self._layers = source, layers
        self._since = 0

    def hand_over(self, session: DraftSession) -> None:
        """Give it what was committed since. Raises what either raises, and ProtocolViolation if it takes none."""
        if not isinstance(session, TakesHidden):
            raise ProtocolViolation(f"its {type(session).__name__} has no take_hidden; see hooks/hidden.py")
        states = self._source.hidden(self._layers, self._since)
        if states.tokens:
            self._since = states.end
            session.take_hidden(states)
