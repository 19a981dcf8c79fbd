"""A drafter's session under another vocabulary: the client speaks bytes, the drafter its own ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.daemon.drafters.guard import commit, compare
from pilotfish.daemon.drafters.proposals import translated
from pilotfish.hooks.history import History, RunningDigest
from pilotfish.hooks.protocols import Bridge, DraftSession
from pilotfish.hooks.types import EMPTY, Ack, Proposal
from pilotfish.hooks.vocabulary import BYTES

BYTES_PER_ID = 4  # of ordinary text: how many ids a proposal of so many bytes is asked for


class BridgedSession:
    """A DraftSession over bytes. The drafter's own session begins once the bridge has ids to begin it with."""

    def __init__(
        self, bridge: Bridge, start: Callable[[Sequence[int]], DraftSession], prompt: Sequence[int], n_vocab: int
    ) -> None:
        """`n_vocab` is the drafter's."""
        self._bridge = bridge
        self._n_vocab = n_vocab
        self._start = start
        self._history = History(prompt)
        self._session: DraftSession | None = None
        self._expected = RunningDigest()
        self._feed(prompt)

    def propose(self, k: int) -> Proposal:
        if self._session is None or k <= 0:
            return EMPTY
        asked = 1 + k // BYTES_PER_ID
        return translated(self._session, self._bridge, asked, of=self._n_vocab, into=BYTES).first(k)

    def commit(self, tokens: Sequence[int]) -> Ack:
        ack = self._history.commit(tokens)
        self._feed(tokens)
        return ack

    def rollback(self) -> Ack:
        if self._session is not None:
            compare(self._session.rollback(), self._expected.ack())
        return self._history.ack()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _feed(self, data: Sequence[int]) -> None:
        if self._session is not None:
            commit(self._session, self._bridge, data, self._expected)
        elif ids := self._bridge.to_drafter(data):  # else held back until more text decides what they are
            self._session = self._start(ids)
            self._expected = RunningDigest(ids)
