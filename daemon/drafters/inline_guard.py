"""A drafter's guard in one session: whatever the drafter does, the session only ever sees a clean proposal.

Isolation. A drafter that raises, answers late, proposes junk or loses the history costs its proposal, never the
answer, whatever it raises, SystemExit included. Three failures in a row empty its guard for this request, a wrong
acknowledgement empties it at once. Refused proposals are counted for `pilotfish status`.

Catching up. Tokens committed while the drafter was not asked are kept and handed over in one commit before the
next proposal, so that a drafter paused for any number of rounds resumes with exactly the committed history.

This module guards the drafters that are called directly; `threaded_guards` those that may be slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from pilotfish.daemon.drafters.proposals import Refusals, translated
from pilotfish.daemon.registry.containment import reason
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Bridge, Drafter, DraftSession
from pilotfish.hooks.types import EMPTY, Ack, Proposal, TargetPin

log = logging.getLogger("pilotfish.drafters")

MAX_FAILURES = 3  # in a row

T = TypeVar("T")


class BaseGuard:
    """What both kinds of guard share: a name, and why the guard is empty (`dropped`), "" while it is not."""

    elsewhere = False  # the drafter computes on another machine

    def __init__(self, drafter: Drafter, bridge: Bridge, *, n_vocab: int, refusals: Refusals | None = None) -> None:
        """`n_vocab` is the target's; `refusals` counts beyond this session."""
        self.name = drafter.name
        self.dropped = ""
        self.refusals = refusals or Refusals()
        self._drafter = drafter
        self._bridge = bridge
        self._n_vocab = n_vocab
        self._failures = 0

    @property
    def busy(self) -> bool:
        """Whether the drafter computes on this machine while the target does."""
        return False

    def _proposal(self, session: DraftSession, k: int) -> Proposal:
        """What the drafter proposes, in target ids; about `k` of them. Raises what the drafter or the bridge raises."""
        own = getattr(self._drafter, "vocabulary", None)
        size = self._n_vocab if own is None else own.pin.n_vocab
        return translated(session, self._bridge, self._drafter_ids(k), of=size, into=self._n_vocab).first(k)

    def _drafter_ids(self, k: int) -> int:
        """How many ids to ask the drafter for, so that the bridge makes `k` of them."""
        translate = getattr(self._bridge, "drafter_ids", None)
        return int(translate(k)) if translate else k

    def _failed(self, what: str, error: BaseException, *, fatal: bool) -> None:
        self._failures += 1
        why = reason(what, error)
        if what == "propose":
            self.refusals.add(why)
        if fatal or self._failures >= MAX_FAILURES:
            self._drop(why)
        else:
            log.warning("drafter %s: %s; this round goes on without it", self.name, why)

    def _drop(self, why: str) -> None:
        if self.dropped:
            return
        self.dropped = why
        log.warning("drafter %s is dropped for this request: %s", self.name, why)


class InlineGuard(BaseGuard):
    """The guard of an inline drafter."""

    def __init__(self, drafter: Drafter, bridge: Bridge, *, n_vocab: int, refusals: Refusals | None = None) -> None:
        super().__init__(drafter, bridge, n_vocab=n_vocab, refusals=refusals)
        self._session: DraftSession | None = None
        self._expected = RunningDigest()
        self._behind: list[int] = []  # committed, not yet handed to the drafter; target ids

    def open(self, target: TargetPin, prompt: Sequence[int]) -> None:
        """Start the drafter's session on `prompt` (target ids)."""

        def start() -> DraftSession:
            ids = self._bridge.to_drafter(prompt)
            self._expected = RunningDigest(ids)
            return self._drafter.open(target, ids)

        self._session = self._guard("open", start, fatal=True)

    def propose(self, k: int, patience: float = 0.0) -> Proposal:
        """At most `k` clean target ids, all inside the vocabulary; empty when the drafter has none or failed."""
        session = self._session
        if session is None or self.dropped or not self._catch_up(session):
            return EMPTY
        proposal = self._guard("propose", lambda: self._proposal(session, k))
        if proposal is None:
            return EMPTY
        self._failures = 0
        return proposal

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


def commit(session: DraftSession, bridge: Bridge, tokens: Sequence[int], expected: RunningDigest) -> None:
    """Hand committed target ids to a drafter whose history is `expected`. Raises ProtocolViolation if it errs."""
    ids = bridge.to_drafter(tokens) if tokens else ()
    if len(ids) > 0:  # else the bridge holds them back
        after = expected.commit(ids)
        compare(session.commit(ids), after)


def compare(ack: object, expected: Ack) -> None:
    """Raise ProtocolViolation unless a drafter acknowledged the history that it ought to have."""
    if type(ack) is not Ack:
        raise ProtocolViolation(f"acknowledged with a {type(ack).__name__}, not an Ack")
    if ack != expected:
        raise ProtocolViolation(f"acknowledged {ack}, but the committed history is {expected}")
