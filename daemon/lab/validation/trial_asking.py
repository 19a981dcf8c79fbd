"""One answer, measured: plainly, with a drafter at one length, or aborted and retried in every round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.config.types import Config, Drafters, Speculation
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generation import GenerationRequest, OutputToken
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.core.target_session import going_back_of
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.drafters.member import DrafterState
from pilotfish.daemon.lab.parity_subject import LOADING_SECONDS, Subject
from pilotfish.daemon.lab.receipts.receipt_types import Ids, RoundRecord, TrialTimes
from pilotfish.daemon.lab.validation.round_watch import RoundWatch, TimedRegistry
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Drafter, LoadableDrafter
from pilotfish.hooks.types import Parity, Placement

Tables = Mapping[str, Mapping[str, Any]]  # of drafters, by name


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """The ids of an answer, what ended it, and what it took."""

    ids: Ids
    stop: str
    times: TrialTimes
    rounds: tuple[RoundRecord, ...]


def drafters_of(registry: Registry, names: Iterable[str]) -> list[Drafter]:
    """The drafters of these names. Raises EngineError where one cannot be had."""
    found = []
    for name in names:
        if (drafter := registry.drafter(name)) is None:
            problems = "; ".join(map(str, registry.problems)) or "no plugin registers it"
            raise EngineError(f"drafter {name} cannot be had: {problems}")
        found.append(drafter)
    return found


class TrialAsking:
    """Asks one loaded model. Drafters with something to load are kept; any other is new for each answer, so that none
    has seen an answer before. `close` lets them go.

    `speculation` is the config's, in force where the controller chooses the lengths.
    """

    def __init__(self, subject: Subject, speculation: Speculation | None = None) -> None:
        self.subject = subject
        self.speculation = speculation or Speculation()
        self.watch = RoundWatch()
        self._kept: dict[str, Generator] = {}
        self._costs: dict[str, CostModel] = {}  # what the controller learned with each drafter

    def close(self) -> None:
        """Let every drafter go."""
        for generator in self._kept.values():
            generator.pool.close()

    def answer(self, request: GenerationRequest, tables: Tables, length: int | None) -> MeasuredAnswer:
        """Answer `request` with the drafters of `tables`, plainly without any. Raises EngineError.

        `length` is that of the longest proposal; with None the controller chooses, as for people.
        """
        generator, threaded = self._generator(tables, length)
        output: list[OutputToken] = []

        def hear(tokens: Sequence[OutputToken]) -> None:
            self.watch.hear_tokens(tokens)
            output.extend(tokens)

        self.watch.begin(length, threaded=threaded)
        started = self.watch.clock()
        try:
            outcome = generator.generate(request, hear, lambda: False)
            total = self.watch.clock() - started
        finally:
            if generator not in self._kept.values():
                generator.pool.close()
        arrivals = tuple(self.watch.arrivals)
        times = TrialTimes(arrivals[0].at if arrivals else total, total, arrivals)
        ids = tuple(token.token for token in output)
        return MeasuredAnswer(ids, str(outcome.stop_type), times, tuple(self.watch.rounds))

    def _generator(self, tables: Tables, length: int | None) -> tuple[Generator, bool]:
        """One that drafts with `tables`, and whether one of its drafters is waited for."""
        title, config = ",".join(tables), self._config(tables, length)
        if title in self._kept:
            self._kept[title].reconfigure(config)
            return self._kept[title], True
        registry = TimedRegistry.load(config)
        assert isinstance(registry, TimedRegistry)
        registry.watch = self.watch
        drafters = drafters_of(registry, tables)
        generator = self._made(registry, config, title)
        if any(isinstance(drafter, LoadableDrafter) for drafter in drafters):
            self._kept[title] = self._loaded(generator)
        return generator, any(drafter.placement is not Placement.INLINE for drafter in drafters)

    def _config(self, tables: Tables, length: int | None) -> Config:
        """Whatever the lane promises, drafts are tried; a drafter of one length is waited for however long it takes."""
        speculation = Speculation(parity=Parity.NONE, deadline_ms=60_000)
        if length is None:
            speculation = replace(self.speculation, enabled=True, parity=Parity.NONE, require_promotion=False)
        return Config(speculation, Drafters(tuple(tables), tables), plugins=self.subject.plugins)

    def _made(self, registry: TimedRegistry, config: Config, title: str) -> Generator:
        subject = self.subject
        engine, pin = subject.engine, subject.pin
        pool = pool_for(engine, pin, subject.verifier, subject.options, config, before=subject.before)
        costs = self._costs.setdefault(title, CostModel(engine.lane.widths, going_back_of(engine)))
        return Generator(engine, pin, registry, config, controller=self.watch.controller, costs=costs, pool=pool)

    def _loaded(self, generator: Generator) -> Generator:
        """The same, once its drafters are ready. Raises EngineError when one cannot be had."""
        generator.pool.settle(LOADING_SECONDS)
        for name, found in generator.pool.describe().items():
            if found["state"] != DrafterState.READY:
                generator.pool.close()
                raise EngineError(f"drafter {name} is {found['state']}: {found['about']}")
        return generator
