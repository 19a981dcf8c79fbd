"""A drafter that says it holds a history that it does not hold. `pilotfish conformance` catches it; in a request its
guard does, which drops it."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.hooks.protocols import Drafter, DraftSession
from pilotfish.hooks.types import Ack, Proposal, TargetPin

_FALSE = "0" * 32


class FalselyAcknowledgingDrafter:
    """`drafter`, whose sessions acknowledge another digest from commit `round` on."""

    def __init__(self, drafter: Drafter, *, round: int = 1) -> None:
        self.name, self.placement = drafter.name, drafter.placement
        self._drafter, self._round = drafter, round

    def open(self, target: TargetPin, prompt: Sequence[int]) -> FalselyAcknowledgingSession:
        return FalselyAcknowledgingSession(self._drafter.open(target, prompt), self._round)


class FalselyAcknowledgingSession:
    def __init__(self, session: DraftSession, round: int) -> None:
        self._session, self._round = session, round

    def propose(self, k: int) -> Proposal:
        return self._session.propose(k)

    def commit(self, tokens: Sequence[int]) -> Ack:
        return self._said(self._session.commit(tokens))

    def rollback(self) -> Ack:
        return self._said(self._session.rollback())

    def close(self) -> None:
        self._session.close()

    def _said(self, ack: Ack) -> Ack:
        return ack if ack.round < self._round else Ack(ack.round, ack.position, _FALSE)
