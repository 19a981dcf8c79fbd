"""The ids compared: every workload answered plainly and with every kind of drafter.

Drafters are made to speculate whether it pays or not (`controller.Eager`), so that as many forwards of as many widths
as possible stand behind the comparison. The oracle replays the plain answer: right everywhere, wrong at every third
token, wrong everywhere. Those three reach full acceptance, every kind of partial acceptance, and none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.depths import after_text, natural_text
from pilotfish.daemon.lab.parity_pins import Compared, Pins, pins_of
from pilotfish.daemon.lab.parity_subject import Contender, Subject, contenders_for
from pilotfish.daemon.lab.workloads import Mode, Workload


@dataclass(frozen=True, slots=True)
class Trial:
    """One answer compared with the plain one, to a prompt of `prompt` ids, at least `depth` of them text in front.

    `prompts` is how prompts were read; `differs_at` is the index of the first other id, None if equal.
    """

    model: str
    lane: str
    prompts: str
    depth: int
    prompt: int
    workload: str
    mode: str
    contender: str
    tokens: int
    drafted: int
    accepted: int
    differs_at: int | None
    pins: Pins

    @property
    def equal(self) -> bool:
        return self.differs_at is None

    @property
    def where(self) -> str:
        """The part of a run that it belongs to."""
        return f"{self.model}, prompts {self.prompts}, after {self.depth} tokens of text"

    @property
    def label(self) -> str:
        """Which one it is, for a person."""
        asked = f"{self.workload}, {self.mode}, {self.contender}"
        return f"{self.model}, prompts {self.prompts}, {asked}, prompt of {self.prompt}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


def run_parity(
    subject: Subject,
    workloads: Sequence[Workload],
    modes: Sequence[Mode],
    *,
    n_predict: int = 256,
    contenders: Sequence[Contender] = (),
    depth: int = 0,
    texts: Sequence[Workload] = (),
    prompts: str = "lane",
    compared: Compared[Trial] | None = None,
) -> Iterator[Trial]:
    """Compare every contender's ids with the plain ones, for every workload in every mode.

    With `depth` at least that many ids of text precede each task: the prompts of `texts`, by default of `workloads`.
    `prompts` says how the subject reads them. What was `compared` before is not asked again.
    """
    contenders = contenders or contenders_for(subject.engine.lane)
    text = natural_text(texts or workloads, depth, lambda text: len(subject.engine.tokenizer.encode(text)))
    comparison = _DepthComparison(subject, depth, prompts, compared or Compared())
    for workload in workloads:  # the prompt is fed once for all its answers
        for mode in modes:
            request = subject.request(after_text(workload, text), mode, n_predict)
            yield from comparison.trials(request, workload, mode, contenders)


@dataclass(frozen=True, slots=True)
class _DepthComparison:
    """What is the same for all trials at one depth."""

    subject: Subject
    depth: int
    prompts: str
    compared: Compared[Trial]

    def trials(
        self, request: GenerationRequest, workload: Workload, mode: Mode, contenders: Sequence[Contender]
    ) -> Iterator[Trial]:
        plain: tuple[int, ...] | None = None
        for contender in contenders:
            pins = self._pins(request, contender)
            if (before := self.compared.get(pins)) is not None:
                yield before
                continue
            if plain is None:
                plain = self.subject.answer(request, None).tokens
            got = self.subject.answer(request, contender, plain)
            yield Trial(
                model=self.subject.title,
                lane=self.subject.engine.lane.name,
                prompts=self.prompts,
                depth=self.depth,
                prompt=len(request.prompt),
                workload=workload.name,
                mode=mode.name,
                contender=contender.title,
                tokens=len(got.tokens),
                drafted=got.outcome.timings.draft_n,
                accepted=got.outcome.timings.draft_n_accepted,
                differs_at=first_difference(plain, got.tokens),
                pins=pins,
            )

    def _pins(self, request: GenerationRequest, contender: Contender) -> Pins:
        return pins_of(
            self.subject,
            prompt=request.prompt,
            sampling=asdict(request.sampling),
            tokens=request.n_predict,
            prompts=self.prompts,
            drafters=[contender.title, dict(contender.tables)],
        )


def first_difference(a: Sequence[object], b: Sequence[object]) -> int | None:
    """The first index at which two lists of ids differ, the shorter length if one continues, None if they are equal."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))
