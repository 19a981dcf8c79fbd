"""A base for drafters that only need the token ids so far. Most of them do."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import DraftSession
from pilotfish.hooks.types import EMPTY, Ack, Placement, Proposal, TargetPin


class HistorySession:
    """A draft session that keeps the history and asks `suggest` for more of it."""

    def __init__(self, drafter: HistoryDrafter, prompt: Sequence[int]) -> None:
        self.history = History(prompt)
        self._drafter = drafter

    def propose(self, k: int) -> Proposal:
        tokens = self._drafter.suggest(self.history.tokens, k)
        return Proposal(tuple(tokens[:k])) if tokens else EMPTY

    def commit(self, tokens: Sequence[int]) -> Ack:
        return self.history.commit(tokens)

    def rollback(self) -> Ack:
        return self.history.ack()

    def close(self) -> None:
        pass


class HistoryDrafter:
    """Subclass, set `name`, write `suggest`, register the class: that is a drafter.

    It gets a thread and a deadline, unless it says that it is quick: `placement = Placement.INLINE`.
    """

    name = "history"
    placement = Placement.THREAD

    def __init__(self, config: object = None) -> None:
        self.config = config

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        return HistorySession(self, prompt)

    def suggest(self, tokens: Sequence[int], k: int) -> Sequence[int]:
        """At most `k` ids that may follow `tokens` (all ids so far, oldest first); empty means "not now"."""
        return ()
