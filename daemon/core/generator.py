"""Everything one loaded model needs to answer requests: its engine, its drafters, and what it learned of costs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.answering import Answering, Emit
from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.coordinator import Coordinator
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generation import GenerationRequest, Outcome
from pilotfish.daemon.core.live import LiveFeed, LiveRequest
from pilotfish.daemon.core.measures import Measures, Meter
from pilotfish.daemon.core.target_session import costs_of, going_back_of, open_target
from pilotfish.daemon.core.totals import Standing, Totals
from pilotfish.daemon.core.turns import Turns
from pilotfish.daemon.drafters.guard import Guard
from pilotfish.daemon.drafters.hidden_feed import hidden_shape_of
from pilotfish.daemon.drafters.pool import DrafterPool
from pilotfish.daemon.drafters.promotions import Promotions, PromotionSubject
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import HasSlots, SpansMachines, TargetEngine, TargetSession
from pilotfish.hooks.types import SessionInfo, SessionReport, TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary

log = logging.getLogger("pilotfish.generator")

MOST_CLIENTS = 32  # programs that are told apart
OTHERS = "other programs"


@dataclass(frozen=True, slots=True)
class _InForce:
    """What a request is answered with; `order` are the drafters that may be used, in the order of preference."""

    config: Config
    registry: Registry
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Seats:
    """What a request holds beside its slot: its drafters' guards, and the observers' attention."""

    registry: Registry
    session: SessionInfo
    guards: Sequence[Guard]
    controller: Controller
    live: LiveRequest

    def leave(self, report: SessionReport) -> None:
        for guard in self.guards:
            guard.close()
        self.registry.notify_closed(self.session, report)


def known_costs(engine: TargetEngine, certified: Iterable[tuple[int, int, float]] = ()) -> CostModel:
    """What is known of `engine` before its first forward: what its certificate says and what it saw as it loaded."""
    costs = CostModel(engine.lane.widths, going_back_of(engine))
    costs.seed(certified)
    costs.seed(costs_of(engine))
    return costs


def _let_go(target: TargetSession) -> None:
    """Close a session whose request cannot begin; what keeps it from beginning is the error to raise."""
    try:
        target.close()
    except BaseException:
        log.exception("a target session could not be closed")


class Generator:
    """Answers requests, as many at a time as the engine has slots, a turn each.

    Every call comes from the engine's thread, but for `reconfigure` and the properties, which are safe from any.
    `controller` makes a request's controller; the lab passes one that speculates whether or not it pays. `costs` is
    what is known of the engine's costs already. `pool` holds the drafters; one that can load nothing by default.
    `promotions` are asked where the config wants them to be; none by default.
    """

    def __init__(
        self,
        engine: TargetEngine,
        pin: TargetPin,
        registry: Registry,
        config: Config,
        *,
        controller: Callable[..., Controller] = Controller,
        costs: CostModel | None = None,
        pool: DrafterPool | None = None,
        promotions: Promotions | None = None,
    ) -> None:
        self.engine = engine
        self.pin = pin
        self.slots = engine.slots if isinstance(engine, HasSlots) else 1  # requests that may be answered at a time
        self._promotions = promotions
        self._in_force = _InForce(config, registry, self._allowed(config))
        self._costs = costs or known_costs(engine)
        self._turns = Turns(engine, self._costs)
        self._controller = controller
        self.live = LiveFeed()
        self._totals = Totals()
        self._clients: dict[str, Totals] = {}
        self._meter = Meter()
        self._answering = 0
        self._parked = ""
        self._controlling: Controller | None = None  # of the request that was begun last
        own = TokenizerVocabulary(engine.tokenizer, pin.tokenizer)
        self._pool = pool or DrafterPool(
            pin, own, engine.n_vocab, hidden=hidden_shape_of(engine), engine=engine.engine.name
        )
        self._fill_pool()

    @property
    def config(self) -> Config:
        """What the next request will be answered with."""
        return self._in_force.config

    @property
    def registry(self) -> Registry:
        """Where the next request's drafters come from."""
        return self._in_force.registry

    @property
    def order(self) -> tuple[str, ...]:
        """The drafters that the next request may be answered with, in the order of preference."""
        return self._in_force.order

    @property
    def totals(self) -> Totals:
        """What was done so far."""
        return self._totals

    @property
    def rounds(self) -> int:
        """How many forwards were timed: what `explain` says may be another after each."""
        return self._costs.forwards

    @property
    def clients(self) -> dict[str, Totals]:
        """The same for each program that asked."""
        return dict(self._clients)

    @property
    def measures(self) -> Measures:
        """What was done so far, the answers that are being written included."""
        return self._meter.taken()

    @property
    def answering(self) -> int:
        """How many requests are being answered."""
        return self._answering

    @property
    def standing(self) -> Standing:
        """Whether the next request will be answered with drafts, and if not, why."""
        refusal = self._refusal(self._in_force)
        if not self.config.speculation.enabled:
            return Standing("off", refusal)
        if refusal:
            return Standing("plain", refusal, by_lane=refusal == self._refusal_by_lane(self._in_force))
        return Standing("parked", self._parked) if self._parked else Standing("active")

    def explain(self) -> dict[str, Any]:
        """What the controller knows and would choose, JSON-ready; safe from any thread. `request` is None at first."""
        lane, standing, controlling = self.engine.lane, self.standing, self._controlling
        return {
            "model": self.pin.name,
            "lane": {"name": lane.name, "parity": lane.parity, "widths": list(lane.widths), "reason": lane.reason},
            "drafters": list(self.order),
            "pool": self._pool.describe(),
            "state": standing.state,
            "reason": standing.reason,
            "totals": self._totals.to_json(),
            "model_of_costs": self._costs.describe(),
            "request": controlling.describe() if controlling else None,
        }

    def reconfigure(self, config: Config, registry: Registry | None = None) -> None:
        """Use `config`, and `registry` if one is given, from the next request on.

        Requests that are being answered keep what they began with.
        """
        # One assignment, read once per request: a request sees the old pair or the new one, never a mixture.
        self._in_force = _InForce(config, registry or self._in_force.registry, self._allowed(config))
        self._parked = ""
        self._fill_pool()

    @property
    def pool(self) -> DrafterPool:
        """The drafters, and what became of them."""
        return self._pool

    def close(self) -> None:
        """Let the drafters go, then the engine."""
        self._pool.close()
        self.engine.close()

    def _fill_pool(self) -> None:
        """Drafters only hold memory while they may be used."""
        in_force = self._in_force
        self._pool.use(in_force.registry, () if self._refusal(in_force) else in_force.order)

    def _allowed(self, config: Config) -> tuple[str, ...]:
        """The config's drafters, or those of them that are promoted for this model in its lane."""
        if not config.speculation.require_promotion:
            return config.drafters.order
        if self._promotions is None:
            return ()
        far_ends = self.engine.far_ends if isinstance(self.engine, SpansMachines) else ()
        subject = PromotionSubject.of(self.pin, self.engine.engine, self.engine.lane, far_ends)
        return self._promotions.among(subject, config.drafters)

    def generate(self, request: GenerationRequest, emit: Emit, cancelled: Callable[[], bool]) -> Outcome:
        """Run `request` to its end, calling `emit` with each round's tokens. Raises RequestError or EngineError."""
        answering = self.begin(request, emit, cancelled)
        while not answering.ended:
            self.turn((answering,))
        return answering.outcome()

    def begin(self, request: GenerationRequest, emit: Emit, cancelled: Callable[[], bool]) -> Answering:
        """Open a slot for `request`, which gets its first turn later. Raises RequestError or EngineError."""
        in_force = self._in_force
        limits, registry = in_force.config.speculation, in_force.registry
        speculates = self._speculates(request, in_force)
        controller = self._controller(self._costs, max_width=limits.max_width, max_loss=limits.max_loss)
        self._controlling = controller
        guards = self._pool.guards(registry, request.prompt, limits.deadline_ms / 1000) if speculates else []
        session = SessionInfo(self.pin, self.engine.lane, tuple(s.name for s in guards), len(request.prompt))
        live = self.live.open(request.client, len(request.prompt), session.drafters)
        seats = _Seats(registry, session, guards, controller, live)
        with contextlib.ExitStack() as undoing:
            undoing.callback(seats.leave, SessionReport())
            undoing.callback(live.ended, None, 0.0)
            registry.notify_opened(session)
            target = open_target(self.engine, request)
            undoing.callback(_let_go, target)
            coordinator = Coordinator(
                self.engine, target, request, guards=guards, controller=controller, meter=self._meter
            )
            answering = Answering(coordinator, target, emit, cancelled, partial(self._ended, seats), live)
            undoing.pop_all()
        self._answering += 1
        return answering

    def turn(self, answerings: Sequence[Answering]) -> None:
        """A turn for each of `answerings`: a prompt block or a round. What one of them raises is its own."""
        self._turns.take(answerings)

    def _ended(self, seats: _Seats, outcome: Outcome | None) -> None:
        self._answering -= 1
        report = outcome.report if outcome else SessionReport()
        seats.live.ended(outcome, seats.controller.gain)
        try:
            if outcome is not None:
                self._settle(outcome, seats.controller, bool(seats.guards), seats.live.client)
        finally:
            seats.leave(report)

    def _settle(self, outcome: Outcome, controller: Controller, speculated: bool, client: str) -> None:
        gain = controller.gain if speculated else 0.0
        self._totals = self._totals.with_answer(outcome.report, gain)
        who = client if client in self._clients or len(self._clients) < MOST_CLIENTS else OTHERS
        self._clients[who] = self._clients.get(who, Totals()).with_answer(outcome.report, gain)
        self._meter.answer(outcome, gain)
        if speculated:
            self._parked = "drafts did not pay at the end of the last answer" if controller.parked else ""

    def _speculates(self, request: GenerationRequest, in_force: _InForce) -> bool:
        return request.speculate and not self._refusal(in_force)

    def _refusal(self, in_force: _InForce) -> str:
        """Why no request is answered with drafts; empty when they may be."""
        config = in_force.config
        if not config.speculation.enabled:
            return f"switched off in {config.path or 'the config'}"
        if by_lane := self._refusal_by_lane(in_force):
            return by_lane
        if config.speculation.require_promotion and not in_force.order:
            remedy = "`pilotfish validate MODEL --execute --output FOLDER` tries them"
            return f"no drafter is promoted for it in its lane; {remedy}"
        return ""

    def _refusal_by_lane(self, in_force: _InForce) -> str:
        lane, wanted = self.engine.lane, in_force.config.speculation.parity
        if lane.max_width <= 1:
            return lane.reason or "no forward wider than one token gives the same ids"
        if not lane.parity.keeps(wanted):
            return f"the lane {lane.name!r} has parity '{lane.parity}', the config asks for '{wanted}'"
        return ""
