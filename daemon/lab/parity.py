"""The proof: every workload answered plainly and with every kind of drafter, and the ids compared.

Drafters are made to speculate whether it pays or not (`controller.Eager`), so that as many forwards of as many widths
as possible stand behind the comparison. The oracle replays the plain answer: right everywhere, wrong at every third
token, wrong everywhere. Those three reach full acceptance, every kind of partial acceptance, and none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.lookup import environment, find_lane
from pilotfish.daemon.chat_template import ChatTemplate, Conversation
from pilotfish.daemon.config import Config, Drafters, Speculation
from pilotfish.daemon.controller import Eager
from pilotfish.daemon.generation import Emission, GenerationRequest, Outcome
from pilotfish.daemon.generator import Generator
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.daemon.registry import Registry
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import EngineOptions, Lane, SamplingParams, TargetPin
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.pins import pin_file

VERIFIER = "llama"


@dataclass(frozen=True, slots=True)
class Contender:
    """A drafter as a parity run uses it. `table` is its config; `replays` adds the plain answer to it."""

    title: str
    drafter: str
    table: dict[str, Any]
    replays: bool = False


CONTENDERS = (
    Contender("suffix", "suffix", {}),
    Contender("oracle", "oracle", {}, replays=True),
    Contender("oracle, every third wrong", "oracle", {"wrong_every": 3}, replays=True),
    Contender("junk", "oracle", {"wrong_every": 1}, replays=True),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One answer compared with the plain one. `differs_at` is the index of the first other id, None if equal."""

    model: str
    lane: str
    workload: str
    mode: str
    contender: str
    tokens: int
    drafted: int
    accepted: int
    differs_at: int | None

    @property
    def equal(self) -> bool:
        return self.differs_at is None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


@dataclass(frozen=True, slots=True)
class Subject:
    """A loaded model under test."""

    pin: TargetPin
    engine: TargetEngine
    template: ChatTemplate

    @classmethod
    def load(
        cls,
        path: Path,
        state_dir: Path | None,
        *,
        lane: Lane | None = None,
        options: EngineOptions | None = None,
        certified: bool = False,
    ) -> Subject:
        """Load the GGUF at `path` in `lane`, or in the lane that the check at load finds. Close `engine` afterwards.

        With `certified` a certificate's lane comes first. Its environment stays in force, so one process can do that
        for one model only.
        """
        verifier = Registry.load().verifier(VERIFIER)
        if verifier is None:
            raise EngineError("libllama is not installed: pip install 'pilotfish[llama]'")
        pin = pin_file(path, state_dir)
        options = replace(options or EngineOptions(), state_dir=state_dir)
        if lane is None and certified:
            lane = find_lane(pin, verifier, options).lane
        with environment(lane):
            engine = verifier.load(pin, lane, options)
        template = ChatTemplate.of_model(read_metadata(path).chat_template, pin.tokenizer, engine.tokenizer)
        return cls(pin, engine, template)

    def request(self, workload: Workload, mode: Mode, n_predict: int) -> GenerationRequest:
        """The workload as ids, with the mode's sampling."""
        messages = [{"role": "system", "content": workload.system}, {"role": "user", "content": workload.prompt}]
        prompt = self.template.render(Conversation(messages if workload.system else messages[1:]))
        return GenerationRequest(
            prompt=tuple(self.engine.tokenizer.encode(prompt)),
            sampling=SamplingParams(**mode.options, top_p=0.9, min_p=0.0),
            n_predict=n_predict,
        )

    def answer(self, request: GenerationRequest, contender: Contender | None, plain: Sequence[int] = ()) -> Answered:
        """Answer `request`, plainly without a contender."""
        tables: dict[str, dict[str, Any]] = {}
        if contender is not None:
            recording = {"tokens": list(plain)} if contender.replays else {}
            tables[contender.drafter] = {**contender.table, **recording}
        config = Config(Speculation(parity="none"), Drafters(tuple(tables), tables))
        emissions: list[Emission] = []
        generator = Generator(self.engine, self.pin, Registry.load(config), config, controller=Eager)
        outcome = generator.generate(request, emissions.extend, lambda: False)
        return Answered(tuple(emission.token for emission in emissions), outcome)


@dataclass(frozen=True, slots=True)
class Answered:
    """The ids of one answer and how it was made."""

    tokens: tuple[int, ...]
    outcome: Outcome


def run_parity(
    subject: Subject,
    workloads: Sequence[Workload],
    modes: Sequence[Mode],
    *,
    n_predict: int = 256,
    contenders: Sequence[Contender] = CONTENDERS,
) -> Iterator[Trial]:
    """Compare every contender's ids with the plain ones, for every workload in every mode."""
    for workload in workloads:  # the prompt is fed once for all its answers
        for mode in modes:
            request = subject.request(workload, mode, n_predict)
            plain = subject.answer(request, None).tokens
            for contender in contenders:
                yield _trial(subject, workload, mode, contender, plain, subject.answer(request, contender, plain))


def _trial(
    subject: Subject, workload: Workload, mode: Mode, contender: Contender, plain: Sequence[int], got: Answered
) -> Trial:
    timings = got.outcome.timings
    return Trial(
        model=subject.pin.quantization or subject.pin.name,
        lane=subject.engine.lane.name,
        workload=workload.name,
        mode=mode.name,
        contender=contender.title,
        tokens=len(got.tokens),
        drafted=timings.draft_n,
        accepted=timings.draft_n_accepted,
        differs_at=first_difference(plain, got.tokens),
    )


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which two id lists differ, their shorter length if one continues, None if they are equal."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))
