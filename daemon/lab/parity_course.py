"""The course of a parity run: every set of weights loaded in turn, every workload asked at every depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Plugins
from pilotfish.daemon.lab.parity_pins import Compared
from pilotfish.daemon.lab.parity_runs import Trial, run_parity
from pilotfish.daemon.lab.parity_subject import N_CONTENDERS, Contender, Subject, contenders_for
from pilotfish.daemon.lab.subjects import Weights, stock_lane
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.hooks.errors import EngineError, ModelNotFound
from pilotfish.hooks.types import EngineOptions

ROOM = 1024  # tokens of context for a task and its template, and for what the text before it is too long
WAYS = ("lane", "fast")  # how prompts are read, `[engine] prompts`; an engine can go on from the first to the second

Tell = Callable[[str], None]
"""What is begun now, for a person who waits"""


@dataclass(slots=True)
class ParityCourse:
    """What is compared, to be run once. `missing` says which weights could not be had, and how to get them.

    With `control` the engine runs outside any lane; with `certified` a certificate's lane comes first. What was
    `compared` before is not asked again.
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
    prompts: Sequence[str] = WAYS[:1]
    compared: Compared[Trial] = field(default_factory=Compared)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many answers will be compared if nothing is missing."""
        asked = len(self.weights) * len(self.prompts) * len(self.depths) * len(self.workloads) * len(self.modes)
        return asked * (N_CONTENDERS + len(self.drafters))

    def run(self, starting: Tell = lambda what: None) -> Iterator[Trial]:
        """Every trial as it is done. Raises EngineError or ModelNotFound when there are no weights at all."""
        for title, path in at_hand(self.weights, self.missing, starting):
            subject = Subject.load(
                path,
                state_dir(),
                title=title,
                verifier=self.engine,
                lane=stock_lane(self.engine) if self.control else None,
                options=replace(self.options, n_ctx=max(self.options.n_ctx, self._context)),
                certified=self.certified,
                plugins=self.plugins,
            )
            try:
                for prompts in (way for way in WAYS if way in self.prompts):
                    subject.read_prompts(prompts)
                    yield from self._trials(subject, prompts, starting)
            finally:
                subject.close()

    def _trials(self, subject: Subject, prompts: str, starting: Tell) -> Iterator[Trial]:
        contenders = (*contenders_for(subject.engine.lane), *self.drafters)
        for depth in self.depths:
            starting(f"{subject.title}, prompts {prompts}, after {depth} tokens of text")
            yield from run_parity(
                subject,
                self.workloads,
                self.modes,
                n_predict=self.n_predict,
                contenders=contenders,
                depth=depth,
                texts=self.texts,
                prompts=prompts,
                compared=self.compared,
            )

    @property
    def _context(self) -> int:
        return max(self.depths) + ROOM + self.n_predict


def at_hand(
    weights: Sequence[Weights], missing: MutableMapping[str, str], starting: Tell
) -> Iterator[tuple[str, Path]]:
    """The title and the GGUF of each that can be had; why not, in `missing`, of the others.

    Raises EngineError or ModelNotFound when there are none at all.
    """
    for each in weights:
        starting(f"loading {each.title}")
        try:
            path = each.find()
        except (EngineError, ModelNotFound) as error:
            missing[each.title] = str(error)
            if len(missing) == len(weights):
                raise
            continue
        yield each.title, path
