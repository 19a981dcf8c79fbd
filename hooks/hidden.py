"""Activations: what a drafter on the target's inside (MTP, EAGLE) asks for. `pilotfish.hooks.protocols` has the rest.

An activation is the residual stream of one token behind one of the target's layers. Layer 0 is the embedding, layer i
what the i-th of the target's layers gives, so that the last one is what its final norm reads.

::

    drafter.hidden_layers                   which layers it wants
    target.keep_hidden(layers)              before the session's first forward
    ... prefill, verify, commit ...
    target.hidden(layers, since)            of the tokens in the cache: the history without its pending token
    draft.take_hidden(states)               before `propose`, in the order of the history
    draft.propose(k)

Only an engine that computes the same rows whether or not it is asked may have them: rows do not depend on drafters.
No built-in verifier has them yet. A drafter that asks in vain is refused by its name, and the status says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pilotfish.hooks.drafter import Drafter, DraftSession
from pilotfish.hooks.target import TargetEngine, TargetSession


@dataclass(frozen=True, slots=True)
class HiddenShape:
    """What an engine has: `layers` of the target's, so that 0 to `layers` may be asked for, each `width` numbers."""

    layers: int
    width: int


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """Activations of consecutive tokens of the history, from position `first` on.

    `data` are float32 numbers in the machine's order, C-contiguous: `(tokens, len(layers), width)`.
    """

    first: int
    tokens: int
    layers: tuple[int, ...]
    width: int
    data: bytes | memoryview

    @property
    def end(self) -> int:
        """The position behind the last token."""
        return self.first + self.tokens


@runtime_checkable
class AsksForHidden(Drafter, Protocol):
    """A drafter that needs activations. Its sessions are `TakesHidden`.

    It proposes in the target's ids, on the engine's thread (`Placement.INLINE` or `Placement.ENGINE_THREAD`):
    activations are not sent to other threads, processes or machines.
    """

    @property
    def hidden_layers(self) -> Sequence[int]:
        """Which layers, ascending; empty for none."""
        ...


@runtime_checkable
class TakesHidden(DraftSession, Protocol):
    """A session of such a drafter."""

    def take_hidden(self, states: HiddenStates) -> None:
        """Activations of tokens that are committed, before the next `propose`.

        They follow those that were given before, but may leave tokens out: a prefix that the target took from an
        earlier request's cache was not computed for this one, and an engine need not keep what nobody fetched. A
        session that lacks what it needs proposes nothing.
        """
        ...


@runtime_checkable
class HasHidden(TargetEngine, Protocol):
    """An engine that can tell them. Its sessions are `GivesHidden`."""

    @property
    def hidden_shape(self) -> HiddenShape | None:
        """What it has of the loaded model; None where it has none of that."""
        ...


@runtime_checkable
class GivesHidden(TargetSession, Protocol):
    """A session of such an engine."""

    def keep_hidden(self, layers: Sequence[int]) -> None:
        """Keep these layers' activations from the next forward on. May be called again with others, before it."""
        ...

    def hidden(self, layers: Sequence[int], since: int) -> HiddenStates:
        """Those of the tokens in the cache from position `since` on, or from the first later one that it still has.

        Between a commit and a verify. Of rejected tokens there are none. What was given may be forgotten.
        """
        ...
