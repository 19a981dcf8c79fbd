"""The guard of a drafter that may be slow: it works on a thread of its own, and nobody has to wait for it.

What it proposed is kept with the place it was proposed for. While the target commits what the proposal says, the rest
of it stays good, however late it came: a long proposal serves several rounds, and one that arrives a round too late
still serves the next. A token that differs ends it.

A drafter elsewhere (on another machine) is asked ahead: as soon as it is idle and what is left of its last proposal
gets short, so that it drafts while the target computes. A drafter on this machine would take the processor away from
the target; it is asked only when somebody waits for it, and starts on the prompt only when it is asked first.

A drafter that computes with the target's engine library has no thread of its own (see `worker`): its calls run while
the caller waits, and are only made where their price is known to pay, or once to learn it.

Acknowledgements travel with the answers: before a proposal is used, the drafter has acknowledged the history it was
made for. One that acknowledges another, or takes longer than its deadline, is dropped for this request; the call it
is in completes on its thread, and its answer is thrown away.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pilotfish.daemon.drafters.guard import BaseGuard, Timing, commit
from pilotfish.daemon.drafters.proposals import Refusals
from pilotfish.daemon.drafters.worker import DrafterWorker, SameThread
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Bridge, Drafter, DraftSession
from pilotfish.hooks.types import EMPTY, Placement, Proposal, TargetPin

AHEAD = 2  # times the tokens wanted now: what a drafter elsewhere is asked for, so that it stays ahead


@dataclass(frozen=True, slots=True)
class _Answer:
    what: str
    seconds: float
    proposal: Proposal = EMPTY
    error: BaseException | None = None


@dataclass(slots=True)
class _Asked:
    k: int
    at: float  # on the guard's clock
    since: list[int]  # committed after the history it is asked for


class ThreadedGuard(BaseGuard):
    """A `Guard` of a drafter on a `worker`; see the module's docstring. `deadline` is in seconds, for one proposal."""

    def __init__(
        self,
        drafter: Drafter,
        bridge: Bridge,
        worker: DrafterWorker | SameThread,
        *,
        n_vocab: int,
        deadline: float,
        refusals: Refusals | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(drafter, bridge, n_vocab=n_vocab, refusals=refusals)
        self.elsewhere = drafter.placement is Placement.REMOTE
        self._timings: list[Timing] = []
        self._worker = worker
        self._deadline = deadline
        self._clock = clock
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._start: tuple[TargetPin, Sequence[int]] | None = None  # until the drafter's session is begun
        self._opened = False
        self._asked: _Asked | None = None  # the proposal that is being made
        self._ready = EMPTY  # continues the committed history
        self._behind: list[int] = []  # committed, not yet handed to the drafter; target ids
        # The rest belongs to the worker's thread.
        self._session: DraftSession | None = None
        self._expected = RunningDigest()

    @property
    def awaited(self) -> bool:
        return not self.dropped

    @property
    def begun(self) -> bool:
        return self._start is None

    @property
    def busy(self) -> bool:
        return not self.elsewhere and not self.dropped and self.begun and (not self._opened or self._asked is not None)

    def open(self, target: TargetPin, prompt: Sequence[int]) -> None:
        """Have the session begun on `prompt` (target ids): at once elsewhere, with the first `begin` here."""
        self._start = (target, prompt)
        self.prompt_tokens = len(prompt)
        if self.elsewhere:
            self.begin()

    def begin(self) -> None:
        """Give the drafter the prompt. Returns at once; until it is done, proposals are empty."""
        if self._start is None or self.dropped:
            return
        (target, prompt), self._start = self._start, None
        self._post("open", lambda: self._open(target, prompt))

    def propose(self, k: int, patience: float = 0.0, *, from_the_start: bool = False) -> Proposal:
        """At most `k` target ids that continue the history: those at hand, else what `patience` seconds bring.

        Without patience a drafter on this machine is not asked. `from_the_start` waits for the prompt, too.
        """
        self._collect(0.0)
        if from_the_start and self.begun and not self._opened and not self.dropped:
            self._collect(patience)
        if self.dropped or not self._opened:
            return EMPTY
        if len(self._ready) < k and self._asked is None and (self.elsewhere or (patience > 0 and not self._ready)):
            self._ask(k * AHEAD if self.elsewhere else k)
        if not self._ready and patience > 0:
            self._collect(min(patience, self._deadline))
        return self._ready.first(k)

    def take_timings(self) -> list[Timing]:
        """What its own thread took."""
        timings, self._timings = self._timings, []
        return timings

    def committed(self, tokens: Sequence[int], *, now: bool) -> None:
        """The target committed `tokens`; the drafter is told before it is asked again."""
        if self.dropped:
            return
        self._behind.extend(tokens)
        self._ready = _after(self._ready, tokens)
        if self._asked is not None:
            self._asked.since.extend(tokens)

    def rolled_back(self) -> None:
        """The round was not committed: what is at hand still continues the history."""

    def close(self) -> None:
        """Let the drafter go, when its thread comes to it. Never raises."""
        self.closed = True
        if self.begun:
            self._worker.post(self._close)
        self._start = None
        self.dropped = self.dropped or "closed"

    def _ask(self, k: int) -> None:
        tokens, self._behind = self._behind, []
        self._asked = _Asked(k, self._clock(), [])
        self._post("propose", lambda: self._propose(tokens, k))

    def _collect(self, patience: float) -> None:
        """Take the answers that are there; wait up to `patience` seconds for a proposal that is being made."""
        until = self._clock() + patience
        while True:
            try:
                answer = self._answers.get_nowait() if patience <= 0 else self._answers.get(timeout=patience)
            except queue.Empty:
                break
            self._take(answer)
            patience = until - self._clock() if self._asked is not None else 0.0
        if self._asked is not None and self._clock() - self._asked.at > self._deadline:
            self._drop(f"propose took longer than its deadline of {self._deadline * 1000:.0f} ms")

    def _take(self, answer: _Answer) -> None:
        asked = self._asked
        if answer.error is not None:
            self._failed(answer.what, answer.error, fatal=answer.what != "propose")
        if answer.what == "open":
            self._opened = answer.error is None
            if self._opened:
                self._timings.append(Timing(None, answer.seconds))
        elif answer.what == "propose":
            self._asked = None
            if answer.error is None and asked is not None:
                self._failures = 0
                self._timings.append(Timing(asked.k, answer.seconds))
                self._ready = _after(answer.proposal, asked.since)

    def _post(self, what: str, call: Callable[[], Proposal]) -> None:
        def job() -> None:
            started = time.perf_counter()
            proposal, error = EMPTY, None
            try:
                proposal = call()
            except _Failed as failed:
                self._answers.put(_Answer(failed.what, 0.0, error=failed.cause))
            except BaseException as raised:
                error = raised
            self._answers.put(_Answer(what, time.perf_counter() - started, proposal, error))

        if not self._worker.post(job):
            self._drop("the system has no thread left for it")

    # On the worker's thread.

    def _open(self, target: TargetPin, prompt: Sequence[int]) -> Proposal:
        ids = self._bridge.to_drafter(prompt)
        self._expected = RunningDigest(ids)
        self._session = self._drafter.open(target, ids)
        return EMPTY

    def _propose(self, tokens: Sequence[int], k: int) -> Proposal:
        session = self._session
        if session is None:
            return EMPTY
        try:
            commit(session, self._bridge, tokens, self._expected)
        except BaseException as error:
            raise _Failed("commit", error) from error
        return self._proposal(session, k)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class _Failed(Exception):
    """A call inside a job that has a name of its own."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause


def _after(proposal: Proposal, tokens: Sequence[int]) -> Proposal:
    """What is left of a proposal once `tokens` were committed; nothing if they are not what it said."""
    if not proposal or tuple(tokens) != proposal.tokens[: len(tokens)]:
        return EMPTY if tokens else proposal
    return Proposal(proposal.tokens[len(tokens) :], proposal.confidence[len(tokens) :])
