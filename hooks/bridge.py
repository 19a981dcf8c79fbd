"""What a bridge is, and the vocabularies it joins. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pilotfish.hooks.types import Proposal, TokenizerPin


@runtime_checkable
class Vocabulary(Protocol):
    """A tokenizer as bridges see it: pinned, and known id by id."""

    pin: TokenizerPin

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text: nothing is added, and what looks like a special token is text like any other."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes an id stands for; of a special one its text. Raises RequestError outside the vocabulary."""
        ...

    def special(self, token: int) -> bool:
        """Whether an id is a control token, which text can never give."""
        ...


@runtime_checkable
class Bridge(Protocol):
    """Translates between a drafter's vocabulary and the target's, for one session.

    `to_drafter` is called with the prompt first, then with each commit in order; `to_target` in between, any number
    of times, for a proposal that continues everything `to_drafter` gave so far.
    """

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        """The drafter ids that these target ids add. May hold some back until more text decides what they are; what
        was given is never taken back.
        """
        ...

    def to_target(self, proposal: Proposal) -> Proposal:
        """A proposal in target ids that continues the committed target ids, cut where it cannot be expressed."""
        ...


@runtime_checkable
class CountsDrafterIds(Protocol):
    """A bridge between vocabularies that cut text into pieces of different lengths."""

    def drafter_ids(self, k: int) -> int:
        """How many ids to ask the drafter for to get `k` target ids; without this it is asked for `k`."""
        ...


class BridgeFactory(Protocol):
    """Opens a bridge between two vocabularies, or answers None: "not mine, ask the next"."""

    def __call__(self, drafter: Vocabulary, target: Vocabulary, /) -> Bridge | None: ...
