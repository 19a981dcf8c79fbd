"""The course of a parity run: every set of weights loaded in turn, every workload asked at every depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Plugins
from pilotfish.daemon.lab.parity_runs import N_CONTENDERS, Contender, Subject, Trial, contenders_for, run_parity
from pilotfish.daemon.lab.subjects import Weights, stock_lane
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.hooks.errors import EngineError, ModelNotFound
from pilotfish.hooks.types import EngineOptions

ROOM = 1024  # tokens of context for a task and its template, and for what the text before it is too long


@dataclass(slots=True)
class ParityCourse:
    """What is compared, to be run once. `missing` says which weights could not be had, and how to get them.

    With `control` the engine runs outside any lane; with `certified` a certificate's lane comes first.
    """

    weights: Sequence[Weights]
    workloads: Sequence[Workload]
    modes: Sequence[Mode]
    depths: Sequence[int]  # tokens of text in front of each task
    texts: Sequence[Workload]  # whose prompts are that text
    n_predict: int
    engine: str
    options: EngineOptions
    control: bool = False
    certified: bool = False
    drafters: Sequence[Contender] = ()  # beside those that every run has
    plugins: Plugins = field(default_factory=Plugins)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many answers will be compared if nothing is missing."""
        asked = len(self.weights) * len(self.depths) * len(self.workloads) * len(self.modes)
        return asked * (N_CONTENDERS + len(self.drafters))

    def run(self, starting: Callable[[str], None] = lambda what: None) -> Iterator[Trial]:
        """Every trial as it is done. Raises EngineError or ModelNotFound when there are no weights at all."""
        for weights in self.weights:
            starting(f"loading {weights.title}")
            try:
                path = weights.find()
            except (EngineError, ModelNotFound) as error:
                self.missing[weights.title] = str(error)
                if len(self.missing) == len(self.weights):
                    raise
                continue
            subject = Subject.load(
                path,
                state_dir(),
                title=weights.title,
                verifier=self.engine,
                lane=stock_lane(self.engine) if self.control else None,
                options=replace(self.options, n_ctx=max(self.options.n_ctx, self._context)),
                certified=self.certified,
                plugins=self.plugins,
            )
            try:
                yield from self._trials(subject, starting)
            finally:
                subject.close()

    def _trials(self, subject: Subject, starting: Callable[[str], None]) -> Iterator[Trial]:
        contenders = (*contenders_for(subject.engine.lane), *self.drafters)
        for depth in self.depths:
            starting(f"{subject.title}, after {depth} tokens of text")
            yield from run_parity(
                subject,
                self.workloads,
                self.modes,
                n_predict=self.n_predict,
                contenders=contenders,
                depth=depth,
                texts=self.texts,
            )

    @property
    def _context(self) -> int:
        return max(self.depths) + ROOM + self.n_predict
