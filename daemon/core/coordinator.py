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

    PREFILL <─> READY <──> VERIFIED ──> DONE
        └─────────┴───────────┴──────> DONE | FAILED

    PREFILL   prompt blocks are being fed; may stop between two. Again after a full context forgot tokens
    READY     target and drafters hold the same history
    VERIFIED  a forward was run and not yet committed; the only ways out are commit and rollback
    DONE      ended by a token, a stop string, the budget, or because the client left
    FAILED    the target is in doubt: nothing of the round is delivered, the request ends with an error

Before a token of a round is delivered, the target has acknowledged the history that contains it, and so has the
inline drafter whose proposal was verified; one on a thread of its own before its next proposal is used. A drafter
that does not is dropped (see `guard`); a target that does not ends the session.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Sequence

from pilotfish.daemon.core.context_window import ContextWindow
from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, StopType
from pilotfish.daemon.core.output_text import OutputText
from pilotfish.daemon.core.proposing import Draft, Proposing
from pilotfish.daemon.core.tally import Tally
from pilotfish.daemon.drafters.guard import Guard
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Rows, TargetEngine, TargetSession
from pilotfish.hooks.types import Proposal

log = logging.getLogger("pilotfish.coordinator")

Emit = Callable[[Sequence[OutputToken]], None]


class State(enum.Enum):
    """Where a session is; see the module's theory of operation."""

    PREFILL = enum.auto()
    READY = enum.auto()
    VERIFIED = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


class Coordinator:
    """Drives one target session and its drafters' guards. Everything is called from one thread."""

    def __init__(
        self,
        engine: TargetEngine,
        target: TargetSession,
        request: GenerationRequest,
        *,
        guards: Sequence[Guard] = (),
        controller: Controller,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.state = State.PREFILL
        self._engine = engine
        self._target = target
        self._request = request
        self._guards = list(guards)
        self._proposing = Proposing(self._guards, controller, clock)
        self._controller = controller
        self._clock = clock
        self._expected = RunningDigest(request.prompt)
        self._window = ContextWindow(engine.n_ctx, request.shift, target)
        self._text = OutputText(request.stop)
        self._stop_type = StopType.NONE
        self._truncated = False
        self._tally = Tally(clock)

    def run(self, emit: Emit, cancelled: Callable[[], bool]) -> Outcome:
        """Generate until the end; `emit` gets each round's tokens, at least one. Raises what the target raises."""
        try:
            while self.state in (State.PREFILL, State.READY) and not cancelled():
                if self.state is State.PREFILL:
                    self._prefill()
                elif self._window.full(self._expected.position):
                    self._make_room()
                else:
                    emit(self._round())
        except BaseException:
            self._undo()
            raise
        return self._outcome()

    def _prefill(self) -> None:
        if self._target.prefill() > 0:
            return
        if self._request.n_predict == 0:
            self._end(StopType.LIMIT)
        else:
            self.state = State.READY

    def _make_room(self) -> None:
        self._window.make_room(self._expected.position)
        self._truncated = True
        self.state = State.PREFILL

    def _round(self) -> list[OutputToken]:
        started, position = self._clock(), self._window.held(self._expected.position)
        draft = self._proposing.draft(position, self._room(position))
        guard, proposal = draft.guard, draft.proposal
        drafted = self._clock()
        rows = self._target.verify(proposal.tokens)
        self.state = State.VERIFIED
        proposal = proposal.first(len(rows) - 1)  # at the end of the context, padding may leave less room
        verified = self._clock()
        output_tokens = self._accept(rows, proposal)
        self._commit([e.token for e in output_tokens], draft)
        ended = self._clock()
        round = Round(
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
            contended=draft.contended or self._proposing.busy,
        )
        self._tally.count(round, ended)
        self._controller.observe_round(round)
        return output_tokens

    def _room(self, position: int) -> int:
        """How many tokens the round may commit: every one fits the budget, the context and the lane."""
        room = min(self._window.room(self._expected.position), self._engine.lane.widest_at(position))
        if self._request.n_predict > 0:
            room = min(room, self._request.n_predict - self._tally.predicted)
        return room

    def _accept(self, rows: Rows, proposal: Proposal) -> list[OutputToken]:
        output_tokens: list[OutputToken] = []
        for i in range(1 + len(proposal)):
            token = rows.pick(i)
            drafted = i < len(proposal) and token == proposal.tokens[i]
            output_tokens.append(self._output_token(rows, i, token, drafted))
            if not drafted or self._stop_type is not StopType.NONE:
                break
        return output_tokens

    def _output_token(self, rows: Rows, i: int, token: int, drafted: bool) -> OutputToken:
        self._tally.predicted += 1
        n_probs = self._request.sampling.n_probs
        logprob = rows.logprobs(i, token, n_probs) if n_probs > 0 else None
        piece = self._engine.tokenizer.piece(token, special=token in self._request.preserved)
        ended = self._ended_by(token, piece)
        text = self._text.push(piece, last=ended is not StopType.NONE)
        if self._text.stopping_word and ended is not StopType.EOS:
            ended = StopType.WORD
        self._stop_type = ended
        return OutputToken(token, text, drafted, logprob)

    def _ended_by(self, token: int, piece: bytes) -> StopType:
        if token in self._engine.eog:
            return StopType.EOS
        if self._request.n_predict > 0 and self._tally.predicted >= self._request.n_predict:
            return StopType.LIMIT
        if self._window.ends(len(self._request.prompt) + self._tally.predicted):
            self._truncated = True
            return StopType.LIMIT
        if b"\n" in piece and 0 < self._request.line_ms < self._tally.milliseconds():
            return StopType.LIMIT
        return StopType.NONE

    def _commit(self, tokens: Sequence[int], draft: Draft) -> None:
        expected = self._expected.commit(tokens)
        ack = self._target.commit(tokens)
        if ack != expected:
            raise ProtocolViolation(
                f"the target acknowledged {ack}, but the committed history is {expected}; the request is given up"
            )
        for guard in self._guards:
            guard.committed(tokens, now=guard is draft.guard)
        self._proposing.observe(draft, tokens)
        self.state = State.READY
        if self._stop_type is not StopType.NONE:
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

    def _end(self, stop_type: StopType) -> None:
        self._stop_type = stop_type
        self.state = State.DONE

    def _outcome(self) -> Outcome:
        lane = self._engine.lane
        return Outcome(
            stop_type=self._stop_type,
            timings=self._tally.timings(len(self._request.prompt), self._target.cached),
            stopping_word=self._text.stopping_word if self._stop_type is StopType.WORD else "",
            truncated=self._truncated,
            discarded=self._window.discarded,
            parity=lane.parity,
            lane=lane.name,
            speculated=self._tally.drafted > 0,
            report=self._tally.report(self._guards),
        )


def run_session(
    engine: TargetEngine,
    request: GenerationRequest,
    guards: Sequence[Guard],
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
