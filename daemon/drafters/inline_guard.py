"""The guard of a drafter that is called directly, on the engine's thread: one that promises to be quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pilotfish.daemon.drafters.guard import BaseGuard, Timing, commit, compare
from pilotfish.daemon.drafters.proposals import Refusals
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Bridge, Drafter, DraftSession
from pilotfish.hooks.types import EMPTY, Proposal, TargetPin

T = TypeVar("T")


class InlineGuard(BaseGuard):
    """A `Guard`. The drafter answers when it is asked, so that there is nothing to wait for."""

    elsewhere = False
    begun = True
    awaited = False
    busy = False

    def __init__(self, drafter: Drafter, bridge: Bridge, *, n_vocab: int, refusals: Refusals | None = None) -> None:
        super().__init__(drafter, bridge, n_vocab=n_vocab, refusals=refusals)
        self._session: DraftSession | None = None
        self._expected = RunningDigest()
        self._behind: list[int] = []  # committed, not yet handed to the drafter; target ids

    def open(self, target: TargetPin, prompt: Sequence[int]) -> None:
        """Start the drafter's session on `prompt` (target ids)."""
        self.prompt_tokens = len(prompt)

        def start() -> DraftSession:
            ids = self._bridge.to_drafter(prompt)
            self._expected = RunningDigest(ids)
            return self._drafter.open(target, ids)

        self._session = self._guard("open", start, fatal=True)

    def begin(self) -> None:
        """`open` did."""

    def propose(self, k: int, patience: float = 0.0, *, from_the_start: bool = False) -> Proposal:
        """At most `k` clean target ids, all inside the vocabulary; empty when the drafter has none or failed."""
        session = self._session
        if session is None or self.dropped or not self._catch_up(session):
            return EMPTY
        proposal = self._guard("propose", lambda: self._proposal(session, k))
        if proposal is None:
            return EMPTY
        self._failures = 0
        return proposal

    def take_timings(self) -> list[Timing]:
        """None: its time is the round's."""
        return []

    def committed(self, tokens: Sequence[int], *, now: bool) -> None:
        """The target committed `tokens`. With `now` the drafter must acknowledge them before this returns."""
        if self._session is None or self.dropped:
            return
        self._behind.extend(tokens)
        if now:
            self._catch_up(self._session)

    def rolled_back(self) -> None:
        """The round was not committed."""
        session = self._session
        if session is None or self.dropped:
            return
        self._guard("rollback", lambda: compare(session.rollback(), self._expected.ack()), fatal=True)

    def close(self) -> None:
        """Let the drafter go. Never raises."""
        self.closed = True
        session, self._session = self._session, None
        if session is None:
            return
        if not self.dropped:
            self._catch_up(session)  # an inline drafter may remember the whole answer, and is quick to take it
        self._guard("close", session.close)

    def _catch_up(self, session: DraftSession) -> bool:
        """Hand over what was committed; whether the drafter is still to be asked."""
        if not self._behind:
            return True
        tokens, self._behind = self._behind, []
        self._guard("commit", lambda: commit(session, self._bridge, tokens, self._expected), fatal=True)
        return not self.dropped

    def _guard(self, what: str, call: Callable[[], T], *, fatal: bool = False) -> T | None:
        try:
            return call()
        except BaseException as error:
            self._failed(what, error, fatal=fatal)
            return None
