"""A drafter's session under another vocabulary: the client speaks bytes, the drafter its own ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import History, RunningDigest
from pilotfish.hooks.protocols import Bridge, DraftSession
from pilotfish.hooks.types import EMPTY, Ack, Proposal

BYTES_PER_ID = 4  # of ordinary text: how many ids a proposal of so many bytes is asked for


class BridgedSession:
    """A DraftSession over bytes. The drafter's own session begins once the bridge has ids to begin it with."""

    def __init__(self, bridge: Bridge, start: Callable[[Sequence[int]], DraftSession], prompt: Sequence[int]) -> None:
        self._bridge = bridge
        self._start = start
        self._history = History(prompt)
        self._session: DraftSession | None = None
        self._expected = RunningDigest()
        self._feed(prompt)

    def propose(self, k: int) -> Proposal:
        if self._session is None or k <= 0:
            return EMPTY
        return self._bridge.to_target(self._session.propose(1 + k // BYTES_PER_ID)).first(k)

    def commit(self, tokens: Sequence[int]) -> Ack:
        ack = self._history.commit(tokens)
        self._feed(tokens)
        return ack

    def rollback(self) -> Ack:
        if self._session is not None:
            self._compare(self._session.rollback())
        return self._history.ack()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _feed(self, data: Sequence[int]) -> None:
        ids = self._bridge.to_drafter(data)
        if not ids:  # held back until more text decides what they are
            return
        if self._session is None:
            self._session = self._start(ids)
            self._expected = RunningDigest(ids)
        else:
            self._expected.commit(ids)
            self._compare(self._session.commit(ids))

    def _compare(self, ack: Ack) -> None:
        if ack != self._expected.ack():
            raise ProtocolViolation(f"the drafter acknowledged {ack}, but its history is {self._expected.ack()}")
