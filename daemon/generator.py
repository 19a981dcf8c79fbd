"""Everything one loaded model needs to answer requests: its engine, its drafters, and what it learned of costs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pilotfish.daemon.config import Config
from pilotfish.daemon.controller import Controller, CostModel
from pilotfish.daemon.coordinator import Emit, run_session
from pilotfish.daemon.generation import GenerationRequest, Outcome
from pilotfish.daemon.registry import Registry
from pilotfish.daemon.seats import Seat
from pilotfish.hooks.protocols import Drafter, TargetEngine
from pilotfish.hooks.types import SessionInfo, SessionReport, TargetPin

log = logging.getLogger("pilotfish.generator")


class Generator:
    """Answers one request at a time; every call comes from the engine's thread.

    `controller` makes a request's controller; the lab passes one that speculates whether or not it pays.
    """

    def __init__(
        self,
        engine: TargetEngine,
        pin: TargetPin,
        registry: Registry,
        config: Config,
        *,
        controller: Callable[..., Controller] = Controller,
    ) -> None:
        self.engine = engine
        self.pin = pin
        self._registry = registry
        self._config = config
        self._costs = CostModel(engine.lane.widths)
        self._controller = controller

    def generate(self, request: GenerationRequest, emit: Emit, cancelled: Callable[[], bool]) -> Outcome:
        """Run `request` to its end, calling `emit` with each round's tokens. Raises RequestError or EngineError."""
        seats = self._open_seats(request) if self._speculates(request) else []
        session = SessionInfo(self.pin, self.engine.lane, tuple(s.name for s in seats), len(request.prompt))
        controller = self._controller(self._costs, max_width=self._config.speculation.max_width)
        report = SessionReport()
        self._registry.notify_opened(session)
        try:
            outcome = run_session(self.engine, request, seats, controller, emit, cancelled)
            report = outcome.report
            return outcome
        finally:
            for seat in seats:
                seat.close()
            self._registry.notify_closed(session, report)

    def _speculates(self, request: GenerationRequest) -> bool:
        return request.speculate and self._config.speculation.enabled and self.engine.lane.max_width > 1

    def _open_seats(self, request: GenerationRequest) -> list[Seat]:
        wanted = self._config.drafters.order
        names = self._registry.choose(self.pin, wanted)
        drafters = (self._registry.drafter(name) for name in names)
        return [seat for drafter in drafters if drafter and (seat := self._seat(drafter, request))]

    def _seat(self, drafter: Drafter, request: GenerationRequest) -> Seat | None:
        # A drafter without a tokenizer of its own speaks the target's ids.
        tokenizer = getattr(drafter, "tokenizer", None) or self.pin.tokenizer
        found = self._registry.bridge(tokenizer, self.pin.tokenizer)
        if found is None:
            log.warning("drafter %s has another vocabulary than %s and no bridge fits", drafter.name, self.pin.name)
            return None
        deadline = self._config.speculation.deadline_ms / 1000
        seat = Seat(drafter, found[1], n_vocab=self.engine.n_vocab, deadline=deadline)
        seat.open(self.pin, request.prompt)
        if seat.dropped:
            seat.close()
            return None
        return seat
