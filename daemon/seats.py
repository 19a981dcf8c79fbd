"""A drafter's seat in one session: whatever the drafter does, the session only ever sees a clean proposal.

Isolation. A drafter that raises, answers late, proposes junk or loses the history costs its proposal, never the
answer. Three failures in a row empty its seat for this request, a wrong acknowledgement empties it at once.

Catching up. Tokens committed while the drafter was not asked are kept and handed over in one commit before the
next proposal, so that a drafter paused for any number of rounds resumes with exactly the committed history.

This module seats the drafters that are called directly; `threaded_seats` those that may be slow.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Bridge, Drafter, DraftSession
from pilotfish.hooks.types import EMPTY, Ack, Proposal, TargetPin

log = logging.getLogger("pilotfish.drafters")

MAX_FAILURES = 3  # in a row


class BaseSeat:
    """What both kinds of seat share: a name, and why the seat is empty (`dropped`), "" while it is not."""

    elsewhere = False  # the drafter computes on another machine

    def __init__(self, drafter: Drafter, bridge: Bridge, *, n_vocab: int) -> None:
        self.name = drafter.name
        self.dropped = ""
        self._drafter = drafter
        self._bridge = bridge
        self._n_vocab = n_vocab
        self._failures = 0

    @property
    def busy(self) -> bool:
        """Whether the drafter computes on this machine while the target does."""
        return False

    def _drafter_ids(self, k: int) -> int:
        """How many ids to ask the drafter for, so that the bridge makes `k` of them."""
        translate = getattr(self._bridge, "drafter_ids", None)
        return int(translate(k)) if translate else k

    def _failed(self, what: str, error: BaseException, *, fatal: bool) -> None:
        self._failures += 1
        why = f"{what} raised {where(error)}"
        if fatal or self._failures >= MAX_FAILURES:
            self._drop(why)
        else:
            log.warning("drafter %s: %s; this round goes on without it", self.name, why)

    def _drop(self, why: str) -> None:
        if self.dropped:
            return
        self.dropped = why
        log.warning("drafter %s is dropped for this request: %s", self.name, why)


class Seat(BaseSeat):
    """The seat of an inline drafter."""

    def __init__(self, drafter: Drafter, bridge: Bridge, *, n_vocab: int) -> None:
        super().__init__(drafter, bridge, n_vocab=n_vocab)
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
        proposal = self._guard(
            "propose", lambda: self._bridge.to_target(checked(session.propose(self._drafter_ids(k))))
        )
        return EMPTY if proposal is None else in_vocabulary(proposal.first(k), self._n_vocab)

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
        ack = self._guard("rollback", session.rollback)
        self._compare(ack, self._expected.ack())

    def close(self) -> None:
        """Let the drafter go. Never raises."""
        session, self._session = self._session, None
        if session is None:
            return
        if not self.dropped:
            self._catch_up(session)  # an inline drafter may remember the whole answer, and is quick to take it
        self._guard("close", session.close)

    def _catch_up(self, session: DraftSession) -> bool:
        if not self._behind:
            return True
        tokens, self._behind = self._behind, []

        def commit() -> Ack:
            ids = self._bridge.to_drafter(tokens)
            if not ids:  # the bridge holds them back
                return self._expected.ack()
            self._expected.commit(ids)
            return session.commit(ids)

        ack = self._guard("commit", commit, fatal=True)
        self._compare(ack, self._expected.ack())
        return not self.dropped

    def _compare(self, ack: Ack | None, expected: Ack) -> None:
        if not self.dropped and ack != expected:
            self._drop(wrong_ack(ack, expected))

    def _guard(self, what: str, call: Callable[[], Any], *, fatal: bool = False) -> Any:
        try:
            result = call()
        except Exception as error:
            self._failed(what, error, fatal=fatal)
            return None
        if what == "propose":
            self._failures = 0
        return result


def wrong_ack(ack: object, expected: Ack) -> str:
    """Why a drafter that acknowledged `ack` is dropped."""
    return f"acknowledged {ack}, but the committed history is {expected}"


def checked(proposal: object) -> Proposal:
    """A drafter's answer, if it is a proposal. Raises ProtocolViolation."""
    if not isinstance(proposal, Proposal):
        raise ProtocolViolation(f"propose returned {type(proposal).__name__}, not a Proposal")
    return proposal


def in_vocabulary(proposal: Proposal, n_vocab: int) -> Proposal:
    """The proposal up to its first id that is none of the target's."""
    for i, token in enumerate(proposal.tokens):
        if type(token) is not int or not 0 <= token < n_vocab:
            return proposal.first(i)
    return proposal


def where(error: BaseException) -> str:
    """What was raised, and where, for a log line."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{at}"
