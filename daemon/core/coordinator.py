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
from dataclasses import dataclass

from pilotfish.daemon.core.context_window import ContextWindow
from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, StopType
from pilotfish.daemon.core.measures import Meter
from pilotfish.daemon.core.output_text import OutputText
from pilotfish.daemon.core.proposing import Draft, Proposing
from pilotfish.daemon.core.tally import Tally
from pilotfish.daemon.core.target_session import going_back_of
from pilotfish.daemon.drafters.guard import Guard
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Rows, SlotSession, TargetEngine, TargetSession
from pilotfish.hooks.types import Proposal

log = logging.getLogger("pilotfish.coordinator")


class State(enum.Enum):
    """Where a session is; see the module's theory of operation."""

    PREFILL = enum.auto()
    READY = enum.auto()
    VERIFIED = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class SharedForward:
    """A forward with `width` tokens of each of `requests`, which took `seconds` in all."""

    requests: int
    width: int
    seconds: float


class Coordinator:
    """Drives one target session and its drafters' guards. Everything is called from one thread.

    `meter` counts what the model's requests do, of which this is one.
    """

    def __init__(
        self,
        engine: TargetEngine,
        target: TargetSession,
        request: GenerationRequest,
        *,
        guards: Sequence[Guard] = (),
        controller: Controller,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.state = State.PREFILL
        self._engine = engine
        self._target = target
        self._request = request
        self._guards = list(guards)
        for guard in self._guards:
            guard.attach(target)
        self._proposing = Proposing(self._guards, controller, clock)
        self.controller = controller
        self._clock = clock
        self._expected = RunningDigest(request.prompt)
        self._restores = going_back_of(engine) is not None
        self._window = ContextWindow(engine.n_ctx, request.shift, target)
        self._text = OutputText(request.stop)
        self._stop_type = StopType.NONE
        self._truncated = False
        self._tally = Tally(clock, meter or Meter())
        self._drafting_processor = 0.0  # seconds of processor time that the round's proposal took
        self.last_round: Round | None = None
        self._started = self._drafted = 0.0  # when the round began, and when it had its proposal

    def turn(self) -> list[OutputToken]:
        """One step towards the end, with no other request beside it: a prompt block, which gives no tokens, or a round.

        Raises what the target raises; then, and wherever else a session is left before its end, `undo` comes next.
        """
        if self._window.full(self._expected.position):
            self.make_room()
        if self.state is State.PREFILL:
            self.prefill()
            return []
        draft = self.propose()
        rows = self._target.verify(draft.tokens)
        return self.take(rows, draft)

    @property
    def reading(self) -> bool:
        """Whether there is more of the prompt to be fed, or a full context to be emptied, before the next round."""
        return self.state is State.PREFILL or self._window.full(self._expected.position)

    def prefill(self) -> None:
        """Feed the next prompt block."""
        if self._target.prefill() > 0:
            return
        if self._request.n_predict == 0:
            self._end(StopType.LIMIT)
        else:
            self.state = State.READY

    def make_room(self) -> None:
        """Have a full context forget."""
        self._window.make_room(self._expected.position)
        self._truncated = True
        self.state = State.PREFILL

    def propose(self) -> Draft:
        """Begin a round: what is to be verified in its forward."""
        self._started, position = self._clock(), self._window.held(self._expected.position)
        busy = time.thread_time()
        draft = self._proposing.draft(position, self._room(position))
        self._drafting_processor = time.thread_time() - busy
        self._drafted = self._clock()
        return draft

    def room(self) -> int:
        """How many rows the next forward may have: every one fits the budget, the context and the lane."""
        return self._room(self._window.held(self._expected.position))

    def take(self, rows: Rows, draft: Draft, shared: SharedForward | None = None) -> list[OutputToken]:
        """End a round with its forward's `rows`: the tokens that are committed, at least one.

        `shared` says what the forward took, if other requests' rounds were in it.
        """
        self.state = State.VERIFIED
        taking = self._clock()
        drafting = self._drafted - self._started
        verifying = shared.seconds / shared.requests if shared else taking - self._drafted
        guard, proposal = draft.guard, draft.proposal.first(len(rows) - 1)  # padding may leave less room at the end
        output_tokens = self._accept(rows, proposal)
        committing = self._commit([e.token for e in output_tokens], draft)
        ended = self._clock()
        width = shared.width if shared else self._engine.lane.pad(max(draft.width, 1 + len(proposal)))
        round = Round(
            position=draft.position,
            width=width,
            drafter=guard.name if guard else "",
            proposal=proposal,
            accepted=sum(e.drafted for e in output_tokens),
            committed=len(output_tokens),
            draft_seconds=drafting,
            verify_seconds=verifying,
            seconds=drafting + verifying + ended - taking,
            waited=draft.waited,
            draft_processor=self._drafting_processor,
            beside=shared.requests - 1 if shared else 0,
            contended=draft.contended or self._proposing.busy,
            again=committing if len(output_tokens) < width else 0.0,
        )
        self.last_round = round
        self._tally.count(round, ended)
        self.controller.observe_round(round)
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

    def _commit(self, tokens: Sequence[int], draft: Draft) -> float:
        """Seconds that the target took for it, where it may compute; else 0."""
        expected = self._expected.commit(tokens)
        began = self._clock() if self._restores else 0.0
        ack = self._target.commit(tokens)
        took = self._clock() - began if self._restores else 0.0
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
        return took

    def undo(self) -> None:
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

    def outcome(self) -> Outcome:
        """How it ended, or how far it came."""
        lane = self._engine.lane
        return Outcome(
            stop_type=self._stop_type,
            timings=self._tally.timings(len(self._request.prompt), self._target.cached),
            stopping_word=self._text.stopping_word if self._stop_type is StopType.WORD else "",
            truncated=self._truncated,
            discarded=self._window.discarded,
            slot=self._target.slot_id if isinstance(self._target, SlotSession) else 0,
            parity=lane.parity,
            lane=lane.name,
            speculated=self._tally.drafted > 0,
            report=self._tally.report(self._guards),
        )
