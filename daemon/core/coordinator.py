"""One request, round by round: draft, verify, pick, commit, deliver.

Theory of operation
-------------------
The target's cache holds the history minus its last token; that token is *pending*. A round forwards
`[pending] + proposal` and gets one row per token. Row i is what plain decoding would have computed after the first
i proposals, bit for bit, because every forward has a width of the lane. So the request's own sampler picks row 0,
row 1, ... and the first pick that differs from the proposal ends the round: it *is* the token that plain decoding
would have drawn there. Nothing is ever accepted by probability, no random number is drawn for a rejected token,
and an empty proposal is just a plain step.

A session moves through these states, and only forwards::

    PREFILL ──> READY <──> VERIFIED ──> DONE
        └─────────┴───────────┴──────> DONE | FAILED

    PREFILL   prompt blocks are being fed; may stop between two
    READY     target and drafters hold the same history
    VERIFIED  a forward was run and not yet committed; the only ways out are commit and rollback
    DONE      ended by a token, a stop string, the budget, or because the client left
    FAILED    the target is in doubt: nothing of the round is delivered, the request ends with an error

Before a token of a round is delivered, the target has acknowledged the history that contains it, and so has the
inline drafter whose proposal was verified; one on a thread of its own before its next proposal is used. A drafter
that does not is dropped (see `guards`); a target that does not ends the session.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pilotfish.daemon.core.controller import Choice, Controller
from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, Timings
from pilotfish.daemon.core.output_text import OutputText
from pilotfish.daemon.drafters.inline_guard import InlineGuard
from pilotfish.daemon.drafters.threaded_guard import ThreadedGuard
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Rows, TargetEngine, TargetSession
from pilotfish.hooks.types import EMPTY, Proposal, SessionReport, shared_prefix

log = logging.getLogger("pilotfish.coordinator")

Emit = Callable[[Sequence[OutputToken]], None]
AnyGuard = InlineGuard | ThreadedGuard


class State(enum.Enum):
    """Where a session is; see the module's theory of operation."""

    PREFILL = enum.auto()
    READY = enum.auto()
    VERIFIED = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


@dataclass(slots=True)
class _Counts:
    predicted: int = 0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0


@dataclass(slots=True)
class _Draft:
    """What the drafters had to say in one round, and what is verified of it."""

    guard: AnyGuard | None = None
    proposal: Proposal = EMPTY
    heard: list[tuple[AnyGuard, Proposal]] = field(default_factory=list)  # every proposal, verified or not
    waited: float = 0.0  # seconds, for drafters on threads of their own
    contended: bool = False  # one of them computed on this machine besides


class Coordinator:
    """Drives one target session and its drafters' guards. Everything is called from one thread."""

    def __init__(
        self,
        engine: TargetEngine,
        target: TargetSession,
        request: GenerationRequest,
        *,
        guards: Sequence[AnyGuard] = (),
        controller: Controller,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.state = State.PREFILL
        self._engine = engine
        self._target = target
        self._request = request
        self._guards = list(guards)
        self._controller = controller
        self._clock = clock
        self._expected = RunningDigest(request.prompt)
        self._text = OutputText(request.stop)
        self._counts = _Counts()
        self._stop_type = "none"
        self._truncated = False
        self._started = clock()
        self._first_token = self._last_token = self._started

    def run(self, emit: Emit, cancelled: Callable[[], bool]) -> Outcome:
        """Generate until the end; `emit` gets each round's tokens, at least one. Raises what the target raises."""
        try:
            while self.state is State.PREFILL and not cancelled():
                self._prefill()
            while self.state is State.READY and not cancelled():
                emit(self._round())
        except BaseException:
            self._undo()
            raise
        return self._outcome()

    def _prefill(self) -> None:
        if self._target.prefill() > 0:
            return
        if self._request.n_predict == 0:
            self._end("limit")
        else:
            self.state = State.READY

    def _round(self) -> list[OutputToken]:
        started, position = self._clock(), self._expected.position
        draft = self._draft(position)
        guard, proposal = draft.guard, draft.proposal
        drafted = self._clock()
        rows = self._target.verify(proposal.tokens)
        self.state = State.VERIFIED
        proposal = proposal.first(len(rows) - 1)  # at the end of the context, padding may leave less room
        verified = self._clock()
        output_tokens = self._accept(rows, proposal)
        self._commit([e.token for e in output_tokens], draft)
        self._last_token = ended = self._clock()
        self._count(
            Round(
                position=position,
                width=self._engine.lane.pad(1 + len(proposal)),
                drafter=guard.name if guard else "",
                proposal=proposal,
                accepted=sum(e.drafted for e in output_tokens),
                committed=len(output_tokens),
                draft_seconds=drafted - started,
                verify_seconds=verified - drafted,
                seconds=ended - started,
                waited=draft.waited,
                contended=draft.contended or any(guard.busy for guard in self._guards),
            )
        )
        return output_tokens

    def _draft(self, position: int) -> _Draft:
        """The proposal to verify and whose it is. Every token it can lead to fits the budget and the context."""
        room = min(self._engine.n_ctx - position, self._engine.lane.widest_at(position))
        if self._request.n_predict > 0:
            room = min(room, self._request.n_predict - self._counts.predicted)
        k = self._controller.plan(position, room - 1)
        draft = _Draft(contended=any(guard.busy for guard in self._guards))
        if k <= 0:
            return draft
        best = self._controller.plain(position)
        for guard in self._guards:
            best = self._consider(draft, best, guard, guard.propose(k), position)
        for guard in self._guards:
            if isinstance(guard, ThreadedGuard) and not guard.dropped:
                best = self._wait(draft, best, guard, k, position)
        return draft

    def _consider(self, draft: _Draft, best: Choice, guard: AnyGuard, proposal: Proposal, position: int) -> Choice:
        """Take the proposal if it promises more than the best so far."""
        if not proposal:
            return best
        draft.heard.append((guard, proposal))
        choice = self._controller.best_length(proposal, guard.name, position, draft.waited)
        if choice.k == 0 or choice.rate <= best.rate:
            return best
        draft.guard, draft.proposal = guard, proposal.first(choice.k)
        return choice

    def _wait(self, draft: _Draft, best: Choice, guard: ThreadedGuard, k: int, position: int) -> Choice:
        """Ask a slow drafter if waiting for it promises more than the best so far."""
        self._learn_timings(guard)
        if any(heard is guard for heard, _ in draft.heard):
            return best
        terms = self._controller.wait_budget(guard.name, position, k, best, draft.waited)
        if terms is None:
            return best
        if not guard.begun:
            if not self._controller.may_open(guard.name, guard.prompt_tokens):
                return best
            started = self._clock()
            guard.begin()
            draft.waited += self._clock() - started
            draft.contended = True
        started = self._clock()
        proposal = guard.propose(terms.k, terms.patience, from_the_start=terms.from_the_start)
        draft.waited += self._clock() - started
        self._learn_timings(guard)
        return self._consider(draft, best, guard, proposal, position)

    def _learn_timings(self, guard: ThreadedGuard) -> None:
        timings, guard.timings = guard.timings, []
        for timing in timings:
            if timing.k is not None:
                self._controller.observe_drafting(guard.name, timing.k, timing.seconds)
            elif not guard.elsewhere:
                self._controller.observe_opening(guard.name, guard.prompt_tokens, timing.seconds)

    def _accept(self, rows: Rows, proposal: Proposal) -> list[OutputToken]:
        output_tokens: list[OutputToken] = []
        for i in range(1 + len(proposal)):
            token = rows.pick(i)
            drafted = i < len(proposal) and token == proposal.tokens[i]
            output_tokens.append(self._output_token(rows, i, token, drafted))
            if not drafted or self._stop_type != "none":
                break
        return output_tokens

    def _output_token(self, rows: Rows, i: int, token: int, drafted: bool) -> OutputToken:
        self._counts.predicted += 1
        n_probs = self._request.sampling.n_probs
        logprob = rows.logprobs(i, token, n_probs) if n_probs > 0 else None
        ended = self._ended_by(token)
        piece = self._engine.tokenizer.piece(token, special=token in self._request.preserved)
        text = self._text.push(piece, last=ended != "")
        if self._text.stopping_word and ended != "eos":
            ended = "word"
        if ended:
            self._stop_type = ended
        return OutputToken(token, text, drafted, logprob)

    def _ended_by(self, token: int) -> str:
        if token in self._engine.eog:
            return "eos"
        if self._request.n_predict > 0 and self._counts.predicted >= self._request.n_predict:
            return "limit"
        if len(self._request.prompt) + self._counts.predicted >= self._engine.n_ctx:
            self._truncated = True
            return "limit"
        return ""

    def _commit(self, tokens: Sequence[int], draft: _Draft) -> None:
        expected = self._expected.commit(tokens)
        ack = self._target.commit(tokens)
        if ack != expected:
            raise ProtocolViolation(
                f"the target acknowledged {ack}, but the committed history is {expected}; the request is given up"
            )
        for guard in self._guards:
            guard.committed(tokens, now=guard is draft.guard)
        for guard, proposal in draft.heard:
            if guard is not draft.guard:
                right = shared_prefix(proposal.tokens, tokens)
                self._controller.observe_proposal(guard.name, proposal, right, min(len(proposal), len(tokens)))
        self.state = State.READY
        if self._stop_type != "none":
            self._end(self._stop_type)

    def _undo(self) -> None:
        """Every exit that is not a commit is a rollback."""
        was, self.state = self.state, State.FAILED
        if was is not State.VERIFIED:
            return
        for guard in self._guards:
            guard.rolled_back()
        try:
            self._target.rollback()
        except BaseException:  # what made this an undoing is the error to raise
            log.exception("the target could not roll back; its session is closed")

    def _end(self, stop_type: str) -> None:
        self._stop_type = stop_type
        self.state = State.DONE

    def _count(self, round: Round) -> None:
        self._counts.rounds += 1
        self._counts.drafted += len(round.proposal)
        self._counts.accepted += round.accepted
        if self._counts.rounds == 1:
            self._first_token = self._last_token
        self._controller.observe_round(round)

    def _outcome(self) -> Outcome:
        counts, lane = self._counts, self._engine.lane
        return Outcome(
            stop_type=self._stop_type,
            timings=self._timings(),
            stopping_word=self._text.stopping_word if self._stop_type == "word" else "",
            truncated=self._truncated,
            parity=lane.parity,
            lane=lane.name,
            speculated=counts.drafted > 0,
            report=SessionReport(
                committed=counts.predicted,
                drafted=counts.drafted,
                accepted=counts.accepted,
                rounds=counts.rounds,
                seconds=self._last_token - self._started,
                drafters=tuple(guard.name for guard in self._guards),
                dropped={guard.name: guard.dropped for guard in self._guards if guard.dropped},
            ),
        )

    def _timings(self) -> Timings:
        first = self._first_token if self._counts.rounds else self._clock()
        return Timings(
            cache_n=self._target.cached,
            prompt_n=len(self._request.prompt) - self._target.cached,
            prompt_ms=1000 * (first - self._started),
            predicted_n=self._counts.predicted,
            predicted_ms=1000 * (self._last_token - first) if self._counts.rounds else 0.0,
            draft_n=self._counts.drafted,
            draft_n_accepted=self._counts.accepted,
        )


def run_session(
    engine: TargetEngine,
    request: GenerationRequest,
    guards: Sequence[AnyGuard],
    controller: Controller,
    emit: Emit,
    cancelled: Callable[[], bool],
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Open the target, run the request, and close the target however it ends. The guards stay the caller's."""
    target = engine.open(request.prompt, request.sampling, cache_prompt=request.cache_prompt)
    coordinator = Coordinator(engine, target, request, guards=guards, controller=controller, clock=clock)
    try:
        return coordinator.run(emit, cancelled)
    finally:
        target.close()
