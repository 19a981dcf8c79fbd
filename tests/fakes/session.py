"""One call that runs a request on a fake engine with given drafters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.core.answering import Answering, Emit
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.coordinator import Coordinator
from pilotfish.daemon.core.costs import CostModel, Round
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken
from pilotfish.daemon.core.measures import Meter
from pilotfish.daemon.core.target_session import open_target
from pilotfish.daemon.drafters.pool import guard_for
from pilotfish.daemon.drafters.worker import DrafterWorker
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import Proposal

PATIENCE = 60.0  # seconds; no drafter is dropped because something else has the processor


class SameIds:
    """A bridge between two equal vocabularies."""

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        return target_ids

    def to_target(self, proposal: Proposal) -> Proposal:
        return proposal


def registry_with(drafter: Drafter) -> Registry:
    """A registry that knows this drafter, in a config that asks for it, and the bridge of the same ids."""

    class Plugin:
        @hookimpl
        def pilotfish_register_drafters(self, register: Callable[[str, Any], None]) -> None:
            register(drafter.name, lambda config: drafter)

        @hookimpl
        def pilotfish_register_bridges(self, register: Callable[[str, Any], None]) -> None:
            register("same", lambda ours, theirs: SameIds())

    registry = Registry(Config(drafters=Drafters(order=(drafter.name,))))
    assert registry.add(PluginSource(drafter.name, "folder", "here", Plugin))
    return registry


class Always(Eager):
    """Speculates whenever it can, at most `most` tokens a round, and remembers the rounds."""

    def __init__(self, engine: FakeEngine, most: int = 15) -> None:
        super().__init__(CostModel(engine.lane.widths), max_width=16)
        self.most = most
        self.rounds: list[tuple[int, int]] = []  # (proposed, committed)

    def plan(self, position: int, room: int) -> int:
        return min(self.most, super().plan(position, room))

    def observe_round(self, round: Round) -> None:
        self.rounds.append((len(round.proposal), round.committed))


@dataclass(frozen=True)
class Answer:
    """What a client would have seen, and who decided."""

    output_tokens: list[OutputToken]
    outcome: Outcome
    controller: Controller

    @property
    def ids(self) -> list[int]:
        return [output_token.token for output_token in self.output_tokens]

    @property
    def text(self) -> str:
        return "".join(output_token.text for output_token in self.output_tokens)


def answer(
    engine: FakeEngine,
    request: GenerationRequest,
    drafters: Sequence[Drafter] = (),
    *,
    most: int = 15,
    controller: Controller | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] | None = None,
    deadline: float = PATIENCE,
    emit: Emit | None = None,
    meter: Meter | None = None,
) -> Answer:
    """Run `request` with every drafter in a guard of its own. `emit` sees what is delivered as it is."""
    pin = fake_pin(engine.n_vocab)
    workers = [DrafterWorker(drafter.name) for drafter in drafters]
    guards = [
        guard_for(drafter, SameIds(), worker, n_vocab=engine.n_vocab, deadline=deadline)
        for drafter, worker in zip(drafters, workers, strict=True)
    ]
    for guard in guards:
        guard.open(pin, request.prompt)
    output_tokens: list[OutputToken] = []

    def deliver(batch: Sequence[OutputToken]) -> None:
        output_tokens.extend(batch)
        if emit is not None:
            emit(batch)

    controller = controller or Always(engine, most)
    try:
        target = open_target(engine, request)
        coordinator = Coordinator(
            engine, target, request, guards=guards, controller=controller, meter=meter, clock=clock or FakeClock()
        )
        answering = Answering(coordinator, target, deliver, cancelled)
        while not answering.ended:
            answering.turn()
        outcome = answering.outcome()
    finally:
        for guard in guards:
            guard.close()
        for worker in workers:
            worker.settle(PATIENCE)
            worker.end()
    return Answer(output_tokens, outcome, controller)
