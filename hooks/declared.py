"""The one reading of what a drafter says of itself: registry, guards, draft hosts and conformance checks take it so."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.hidden import AsksForHidden
from pilotfish.hooks.protocols import Drafter, ServesSessions, SpeaksVocabulary, Vocabulary
from pilotfish.hooks.types import Placement

# What said it in pilotfish 0.1. A plugin for both versions may keep these.
_BEFORE = {
    "inline": Placement.INLINE,
    "engine_thread": Placement.ENGINE_THREAD,
    "hosted": Placement.PROCESS,
    "elsewhere": Placement.REMOTE,
}


def placement_of(drafter: Drafter) -> Placement:
    """Where `drafter` computes.

    Raises ProtocolViolation, saying what to do, when that is no Placement, or another one than what 0.1 asked for says.
    """
    placement: object = drafter.placement
    if not isinstance(placement, Placement):
        raise ProtocolViolation(f"its `placement` is {placement!r:.40}; say one of {', '.join(map(_named, Placement))}")
    for name, meant in _BEFORE.items():
        if getattr(drafter, name, False) is True and placement is not meant:
            raise ProtocolViolation(f"`{name}` is not read any more; say placement = {_named(meant)}")
    return placement


def vocabulary_of(drafter: Drafter) -> Vocabulary | None:
    """The vocabulary in which `drafter` proposes; None when that is the target's own."""
    return drafter.vocabulary if isinstance(drafter, SpeaksVocabulary) else None


def sessions_of(drafter: Drafter) -> int:
    """How many sessions `drafter` can have open at a time; one where it does not say."""
    sessions: object = drafter.sessions if isinstance(drafter, ServesSessions) else 1
    return sessions if type(sessions) is int and sessions > 0 else 1


def hidden_layers_of(drafter: Drafter) -> tuple[int, ...]:
    """Which of the target's activations `drafter` asks for; none where it does not say.

    Raises ProtocolViolation, saying what to do, for layers that are no ascending numbers from 0 on.
    """
    asked: object = drafter.hidden_layers if isinstance(drafter, AsksForHidden) else ()
    layers = tuple(asked) if isinstance(asked, Sequence) else (asked,)
    if not all(type(layer) is int and layer >= 0 for layer in layers) or list(layers) != sorted(set(layers)):
        raise ProtocolViolation(f"its `hidden_layers` are {asked!r:.60}; give ascending numbers from 0 on")
    return layers


def _named(placement: Placement) -> str:
    return f"Placement.{placement.name}"
