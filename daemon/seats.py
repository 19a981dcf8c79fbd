"""A drafter's seat in one session: whatever the drafter does, the session only ever sees a clean proposal.

Isolation. A drafter that raises, answers late, proposes junk or loses the history costs its proposal, never the
answer. An `inline` drafter is called directly. Any other has a thread of its own; when it misses its deadline
the thread is abandoned and the seat is empty from then on. Three failures in a row empty it too, a wrong
acknowledgement empties it at once.

Catching up. Tokens committed while the drafter was not asked are kept and handed over in one commit before the
next proposal, so that a drafter paused for any number of rounds resumes with exactly the committed history.
"""

from __future__ import annotations

import logging
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Bridge, Drafter, DraftSession
from pilotfish.hooks.types import EMPTY, Ack, Proposal, TargetPin

log = logging.getLogger("pilotfish.drafters")

MAX_FAILURES = 3  # in a row


class Seat:
    """One drafter in one session. `dropped` says why the seat is empty, or is "" while it is not."""

    def __init__(
        self,
        drafter: Drafter,
        bridge: Bridge,
        *,
        n_vocab: int,
        deadline: float,
    ) -> None:
        self.name = drafter.name
        self.dropped = ""
        self._drafter = drafter
        self._bridge = bridge
        self._n_vocab = n_vocab
        self._failures = 0
        self._session: DraftSession | None = None
        self._expected = RunningDigest()
        self._behind: list[int] = []  # committed, not yet handed to the drafter; target ids
        self._call: _Caller = _direct if getattr(drafter, "inline", False) else _Thread(drafter.name, deadline)

    def open(self, target: TargetPin, prompt: Sequence[int]) -> None:
        """Start the drafter's session on `prompt` (target ids)."""

        def start() -> DraftSession:
            ids = self._bridge.to_drafter(prompt)
            self._expected = RunningDigest(ids)
            return self._drafter.open(target, ids)

        self._session = self._guard("open", start, fatal=True)

    def propose(self, k: int) -> Proposal:
        """At most `k` clean target ids, all inside the vocabulary; empty when the drafter has none or failed."""
        session = self._session
        if session is None or self.dropped or not self._catch_up(session):
            return EMPTY
        proposal = self._guard("propose", lambda: self._bridge.to_target(_checked(session.propose(k))))
        return EMPTY if proposal is None else _in_vocabulary(proposal.first(k), self._n_vocab)

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
        threaded = self._call if isinstance(self._call, _Thread) else None
        if session is not None:
            if threaded and self.dropped:
                threaded.post(session.close)  # it may still hang; it is closed when it comes back
            else:
                if not threaded and not self.dropped:
                    self._catch_up(session)  # an inline drafter may remember the whole answer, and is quick to take it
                self._guard("close", session.close)
        if threaded:
            threaded.post(None)

    def _catch_up(self, session: DraftSession) -> bool:
        if not self._behind:
            return True
        tokens, self._behind = self._behind, []

        def commit() -> Ack:
            ids = self._bridge.to_drafter(tokens)
            self._expected.commit(ids)
            return session.commit(ids)

        ack = self._guard("commit", commit, fatal=True)
        self._compare(ack, self._expected.ack())
        return not self.dropped

    def _compare(self, ack: Ack | None, expected: Ack) -> None:
        if not self.dropped and ack != expected:
            self._drop(f"acknowledged {ack}, but the committed history is {expected}")

    def _guard(self, what: str, call: Callable[[], Any], *, fatal: bool = False) -> Any:
        try:
            result = self._call(call)
        except _Late as late:
            self._drop(f"{what} took longer than its deadline of {late.deadline * 1000:.0f} ms")
        except Exception as error:
            self._failed(f"{what} raised {_where(error)}", fatal=fatal)
        else:
            if what == "propose":
                self._failures = 0
            return result
        return None

    def _failed(self, why: str, *, fatal: bool) -> None:
        self._failures += 1
        if fatal or self._failures >= MAX_FAILURES:
            self._drop(why)
        else:
            log.warning("drafter %s: %s; this round goes on without it", self.name, why)

    def _drop(self, why: str) -> None:
        if self.dropped:
            return
        self.dropped = why
        log.warning("drafter %s is dropped for this request: %s", self.name, why)


def _checked(proposal: object) -> Proposal:
    if not isinstance(proposal, Proposal):
        raise ProtocolViolation(f"propose returned {type(proposal).__name__}, not a Proposal")
    return proposal


def _in_vocabulary(proposal: Proposal, n_vocab: int) -> Proposal:
    for i, token in enumerate(proposal.tokens):
        if type(token) is not int or not 0 <= token < n_vocab:
            return proposal.first(i)
    return proposal


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{at}"


class _Late(Exception):
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline  # seconds


_Caller = Callable[[Callable[[], Any]], Any]


def _direct(call: Callable[[], Any]) -> Any:
    return call()


class _Thread:
    """Runs calls on one thread and waits at most `deadline` seconds for each."""

    def __init__(self, name: str, deadline: float) -> None:
        self._name = name
        self._deadline = deadline
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, call: Callable[[], Any]) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"drafter-{self._name}", daemon=True)
            self._thread.start()
        self._calls.put(call)
        try:
            result, error = self._results.get(timeout=self._deadline)
        except queue.Empty:
            raise _Late(self._deadline) from None
        if error is not None:
            raise error
        return result

    def post(self, call: Callable[[], Any] | None) -> None:
        """Run `call` when the thread is free, without waiting for it; None ends the thread."""
        self._calls.put(call)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._results.put((call(), None))
            except Exception as error:
                self._results.put((None, error))
