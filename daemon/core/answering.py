"""One request on its way through the engine, a turn at a time, beside others that take theirs.

Whatever is raised in a turn, by the engine, a plugin or the reader, ends this request with that error and no other one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pilotfish.daemon.core.company import Company
from pilotfish.daemon.core.coordinator import Coordinator, SharedForward, State
from pilotfish.daemon.core.generation import Outcome, OutputToken
from pilotfish.daemon.core.live import LiveRequest
from pilotfish.daemon.core.proposing import Draft
from pilotfish.hooks.protocols import Rows, SlotSession, TargetSession

log = logging.getLogger("pilotfish.coordinator")

Emit = Callable[[Sequence[OutputToken]], None]


class Settled:
    """What ends once, with an outcome or with an error."""

    _result: Outcome | BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether `outcome` is to be had. No turn may follow."""
        return self._result is not None

    def outcome(self) -> Outcome:
        """How it ended. Raises what ended it."""
        if isinstance(self._result, BaseException):
            raise self._result
        if self._result is None:
            raise RuntimeError("the answer is not finished")
        return self._result


class Answering(Settled):
    """Drives a coordinator to its end.

    `emit` gets each round's tokens, at least one; `cancelled` is asked before each turn. Once the target is closed,
    `ended` is told the outcome, or None after an error. `live` is told of rounds while somebody looks.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        target: TargetSession,
        emit: Emit,
        cancelled: Callable[[], bool],
        ended: Callable[[Outcome | None], None] = lambda outcome: None,
        live: LiveRequest | None = None,
    ) -> None:
        self.slot = target.slot_id if isinstance(target, SlotSession) else 0
        self.target = target
        self.controller = coordinator.controller
        self._coordinator = coordinator
        self._emit = emit
        self._cancelled = cancelled
        self._tell = ended
        self._live = live

    @property
    def room(self) -> int:
        """How many rows its next forward may have."""
        return self._coordinator.room()

    def turn(self) -> None:
        """A prompt block or a round, or the end. Never raises."""
        if self._leaves():
            return
        try:
            self._deliver(self._coordinator.turn())
        except BaseException as error:
            self.fail(error)

    @property
    def reading(self) -> bool:
        """Whether its next turn is a prompt block."""
        return self._coordinator.reading

    def propose(self, company: Company) -> Draft | None:
        """Begin a round beside others: what is to be verified in its forward; None when it ended. Never raises."""
        if self._leaves():
            return None
        self.controller.company = company
        try:
            return self._coordinator.propose()
        except BaseException as error:
            self.fail(error)
            return None

    def take(self, rows: Rows, draft: Draft, shared: SharedForward | None) -> None:
        """End the round. Never raises."""
        try:
            self._deliver(self._coordinator.take(rows, draft, shared))
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End with an error that was met on its behalf."""
        self._coordinator.undo()
        self._end(error)

    def _leaves(self) -> bool:
        """Whether it ends because the reader left."""
        try:
            if self._cancelled():
                self._end(self._coordinator.outcome())
        except BaseException as error:
            self.fail(error)
        return self.ended

    def _deliver(self, output_tokens: Sequence[OutputToken]) -> None:
        if output_tokens:
            self._emit(output_tokens)
            if self._live is not None and self._live.feed.watched and (round := self._coordinator.last_round):
                self._live.round(round, output_tokens, self.controller.gain)
        if self._coordinator.state is State.DONE:
            self._end(self._coordinator.outcome())

    def _end(self, result: Outcome | BaseException) -> None:
        try:
            self.target.close()
        except BaseException as error:
            log.exception("a target session could not be closed")
            result = result if isinstance(result, BaseException) else error
        try:
            self._tell(result if isinstance(result, Outcome) else None)
        except BaseException as error:
            result = error
        self._result = result
