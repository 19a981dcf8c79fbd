"""The course of a validation: prompts checked, every planned trial asked and compared, and the receipt of it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pilotfish.daemon.config.types import Promotion, Speculation
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.parity_runs import first_difference
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.receipts.receipt_types import (
    Ids,
    Receipt,
    RunSettings,
    TrialKind,
    TrialRecord,
    TrialTimes,
    TrialVerdict,
)
from pilotfish.daemon.lab.validation.checked_prompts import CheckedPrompt, Prompted
from pilotfish.daemon.lab.validation.control_ollama import ControlOllama, counts_agree, first_other_byte
from pilotfish.daemon.lab.validation.control_watch import ControlWatch
from pilotfish.daemon.lab.validation.judging import judged
from pilotfish.daemon.lab.validation.oracle_cases import ABORT, PreparedCase, prepared, reached
from pilotfish.daemon.lab.validation.retried_rounds import retried
from pilotfish.daemon.lab.validation.run_surroundings import environment_now, pins_of_run
from pilotfish.daemon.lab.validation.trial_asking import MeasuredAnswer, TrialAsking
from pilotfish.daemon.lab.validation.trial_plan import AUTO, PlannedTrial, TrialPlan
from pilotfish.daemon.lab.workloads import Mode
from pilotfish.hooks.errors import PilotfishError

NOTHING = TrialTimes(0.0, 0.0)

Tell = Callable[[TrialRecord], None]


@dataclass(slots=True)
class ValidationCourse:
    """One run over a loaded model. `model` is what it was asked for as; `controls` are the URLs of Ollamas."""

    subject: Subject
    model: str
    plan: TrialPlan
    prompted: Prompted
    mode: Mode
    thresholds: Promotion = field(default_factory=Promotion)
    speculation: Speculation = field(default_factory=Speculation)  # the config's
    prompts: str = "lane"  # how they are read
    controls: tuple[str, ...] = ()
    unsafe_lane: bool = False
    load_seconds: float | None = None
    stopped: bool = False  # by an interrupt, before everything was asked
    _plain: dict[str, TrialRecord] = field(default_factory=dict)  # the reference of each prompt
    _watched: ControlWatch = field(default_factory=ControlWatch)

    @property
    def longest(self) -> int:
        """Ids of the longest proposal that the lane holds."""
        return self.subject.engine.lane.max_width - 1

    def run(self, tell: Tell = lambda record: None) -> Receipt:
        """Ask everything that is planned; `tell` hears of each trial once it is compared.

        After an interrupt the receipt has the trials until then; without any it is raised.
        """
        trials: list[TrialRecord] = []
        asking = TrialAsking(self.subject, self.speculation)
        try:
            for record in self._records(asking):
                trials.append(record)
                tell(record)
        except KeyboardInterrupt:
            if not trials:
                raise
            self.stopped = True
        finally:
            asking.close()
        verdict, judgements = judged(trials, self.thresholds, unsafe_lane=self.unsafe_lane, stopped=self.stopped)
        return Receipt(
            environment=environment_now(),
            pins=pins_of_run(self.model, self.subject),
            settings=self._settings(),
            trials=tuple(trials),
            verdict=verdict,
            load_seconds=self.load_seconds,
            judgements=judgements,
            notes=tuple(self._notes(len(trials))),
            controls=self._watched.records(self.controls),
        )

    def _records(self, asking: TrialAsking) -> Iterator[TrialRecord]:
        prompts = {prompt.name: prompt for prompt in self.prompted.prompts}
        for number, planned in enumerate(self.plan.trials(self.longest)):
            record = TrialInTheMaking(self, asking, planned, prompts[planned.prompt], planned.name(number)).record()
            if record.kind is TrialKind.PLAIN and record.verdict is TrialVerdict.REFERENCE:
                self._plain[record.prompt] = record
            if planned.control is not None:
                self._watched.look(self.controls[planned.control], self.subject.pin)
            yield record

    def reference(self, prompt: str) -> TrialRecord | None:
        """The plain answer that others to `prompt` are compared with; None before there is one."""
        return self._plain.get(prompt)

    def request(self, prompt: CheckedPrompt) -> GenerationRequest:
        """The prompt, which every trial reads, with the run's sampling and budget."""
        return GenerationRequest(prompt.ids, self.mode.sampling, n_predict=self.plan.tokens, cache_prompt=False)

    def _settings(self) -> RunSettings:
        options, plan = self.subject.options, self.plan
        return RunSettings(
            lane=self.subject.engine.lane,
            n_ctx=self.subject.engine.n_ctx,
            threads=options.threads,
            batch_size=options.batch_size,
            prompts=self.prompts,
            tokens=plan.tokens,
            sampling=self.mode.sampling,
            lengths=plan.lengths,
            repeats=plan.repeats,
            drafters=plan.drafters,
            oracle_cases=plan.oracle_cases,
            order=plan.order,
            control=", ".join(self.controls),
            unsafe_lane=self.unsafe_lane,
            thresholds=self.thresholds,
            gpu_layers=options.gpu_layers,
            speculation=self.speculation,
        )

    def _notes(self, answered: int) -> Iterator[str]:
        yield from self.prompted.remarks
        if self.stopped:
            yield f"stopped after {answered} of {len(self.plan.trials(self.longest))} answers: nothing is promoted"
        cut = [n for n in self.plan.lengths if n != AUTO and int(n) > self.longest]
        if self.longest == 0:
            yield f"no drafts: {self.subject.engine.lane.reason or 'the lane holds one token'}"
        elif cut:
            yield f"proposals of {', '.join(cut)}: the lane holds {self.longest} at most, which was tried instead"
        if self.unsafe_lane:
            yield "unsafe lane: stock settings in every width; ids are expected to differ, and nothing is promoted"


@dataclass(frozen=True, slots=True)
class TrialInTheMaking:
    """One planned trial on its way to a record."""

    course: ValidationCourse
    asking: TrialAsking
    planned: PlannedTrial
    prompt: CheckedPrompt
    name: str

    def record(self) -> TrialRecord:
        """Asked and compared. An error of the engine or a drafter is its verdict."""
        ways = {TrialKind.ORACLE: self._oracle, TrialKind.CONTROL: self._control}
        try:
            return ways.get(self.planned.kind, self._drafted)()
        except PilotfishError as error:
            return self._made(NO_ANSWER, TrialVerdict.FAILED, about=str(error))

    def _drafted(self) -> TrialRecord:
        """Plainly, cold or warm, or with a drafter."""
        drafter, length = self.planned.drafter, self.planned.length
        tables = {drafter: self.course.plan.drafters[drafter]} if drafter else {}
        number = int(length) if length not in ("", AUTO) else None
        answer = self.asking.answer(self.course.request(self.prompt), tables, number)
        return self._compared(answer, table=tables.get(drafter, {}))

    def _oracle(self) -> TrialRecord:
        reference, k, case = self.course.reference(self.prompt.name), int(self.planned.length), self.planned.case
        if reference is None or not reference.output_ids:
            return self._made(NO_ANSWER, TrialVerdict.NOT_REACHED, about="there is no plain answer to replay")
        request, eos = self.course.request(self.prompt), self.course.subject.pin.tokenizer.eos
        plan = prepared(case, request, reference, k, eos, lambda r: self.asking.answer(r, {}, 1))
        if plan.table is None:
            return self._made(NO_ANSWER, TrialVerdict.NOT_REACHED, about=plan.about)
        answer = self._oracle_answer(plan, k)
        other = plan.request.sampling if plan.request.sampling != request.sampling else None
        record = self._compared(answer, expected=plan.expected, table=_shown(plan), sampling=other)
        if record.verdict is TrialVerdict.EQUAL and not reached(case, record.rounds, k):
            return self._made(answer, TrialVerdict.NOT_REACHED, about="equal, but no round of this kind came up")
        return record

    def _oracle_answer(self, plan: PreparedCase, k: int) -> MeasuredAnswer:
        if self.planned.case == ABORT:
            return retried(self.course.subject.engine, plan.request, plan.expected, k, self.asking.watch.clock)
        return self.asking.answer(plan.request, {"oracle": plan.table or {}}, k)

    def _compared(self, answer: MeasuredAnswer, *, expected: Ids | None = None, **more: object) -> TrialRecord:
        reference = self.course.reference(self.prompt.name)
        if self.planned.kind is TrialKind.COLD or (reference is None and self.planned.kind is TrialKind.PLAIN):
            return self._made(answer, TrialVerdict.REFERENCE, **more)
        if reference is None:
            return self._made(answer, TrialVerdict.FAILED, about="there is no plain answer to compare it with", **more)
        at = first_difference((reference.output_ids or ()) if expected is None else expected, answer.ids)
        verdict = TrialVerdict.EQUAL if at is None else TrialVerdict.DIFFERENT
        return self._made(answer, verdict, compared_with=reference.name, differs_at=at, **more)

    def _control(self) -> TrialRecord:
        course = self.course
        server = ControlOllama(course.controls[self.planned.control or 0], course.model, course.subject.engine.n_ctx)
        got = asyncio.run(server.answer(self.prompt, course.mode, course.plan.tokens))
        answer = MeasuredAnswer((), "", got.times, ())
        given = {"tokens": got.tokens, "text": got.text, "output_ids": None}
        if (reference := course.reference(self.prompt.name)) is None:
            return self._made(answer, TrialVerdict.FAILED, about="there is no plain answer to compare it with", **given)
        mine = course.subject.engine.tokenizer.decode(reference.output_ids or (), special=False)
        at = first_other_byte(mine.decode("utf-8", "replace"), got.text)
        agree = counts_agree(reference.tokens, got.tokens, terminated=reference.terminated)
        verdict = TrialVerdict.EQUAL if at is None and agree else TrialVerdict.DIFFERENT
        about = "" if agree else f"it counts {got.tokens} tokens, here they are {reference.tokens}"
        return self._made(answer, verdict, compared_with=reference.name, differs_at=at, about=about, **given)

    def _made(self, answer: MeasuredAnswer, verdict: TrialVerdict, **more: Any) -> TrialRecord:
        planned = self.planned
        made = TrialRecord(
            name=self.name,
            kind=planned.kind,
            prompt=planned.prompt,
            n_prompt=len(self.prompt.ids),
            drafter=planned.drafter,
            length=planned.length,
            case=planned.case,
            repeat=planned.repeat,
            control=planned.control,
            tokens=len(answer.ids),
            stop=answer.stop,
            times=answer.times,
            rounds=answer.rounds,
            verdict=verdict,
            prompt_ids=self.prompt.ids,
            output_ids=answer.ids,
        )
        return replace(made, **more)


NO_ANSWER = MeasuredAnswer((), "none", NOTHING, ())


def _shown(plan: PreparedCase) -> dict[str, object]:
    """The oracle's table without the answer that it replays."""
    return {name: value for name, value in (plan.table or {}).items() if name != "tokens"}
