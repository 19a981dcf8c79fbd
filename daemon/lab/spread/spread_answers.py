"""Answers of a model that is spread over far ends: plain and speculative by turns, as the product gives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.lab.parity_subject import Subject, answered
from pilotfish.daemon.lab.spread.spread_row import LearnedCost, SpreadAnswer, SpreadRow, SpreadSize
from pilotfish.daemon.lab.workloads import KINDS, MODES, Mode, Workload, load_workloads
from pilotfish.hooks.types import EngineOptions, EngineSetting

Stage = Callable[[str], None]

# The default drafter without what it keeps of earlier answers: the second round asks the same again, and would copy.
DRAFTERS = Drafters(("suffix",), {"suffix": {"memory": "off"}})


@dataclass(frozen=True, slots=True)
class SpreadAnswers:
    """A row without blocks, the prompts as ids by workload, and how the model was loaded."""

    row: SpreadRow
    prompts: Mapping[str, Sequence[int]]
    setting: EngineSetting
    block: int  # tokens of a prompt that are read at once


def chosen_workloads() -> list[Workload]:
    """The first of each kind."""
    known = load_workloads()
    return [next(workload for workload in known if workload.kind == kind) for kind in KINDS]


def answers_row(
    path: Path,
    options: EngineOptions,
    size: SpreadSize,
    stage: Stage,
    load: Callable[..., Subject] = Subject.load,
) -> SpreadAnswers:
    """A row with what loading and answers gave. Raises what an engine raises."""
    stage("loading")
    started = time.perf_counter()
    subject = load(path, options.state_dir, options=options)
    took = time.perf_counter() - started
    try:
        lane = subject.engine.lane
        generator = subject.generator(Config(drafters=DRAFTERS), Controller)
        asked = [(workload, mode) for mode in MODES for workload in chosen_workloads()]
        answers, prompts = [], {}
        for workload, mode in asked:
            stage(f"{workload.name}, {mode.name}")
            request = subject.request(workload, mode, size.tokens)
            prompts[workload.name] = request.prompt
            answers.append(paired(generator, request, workload, mode, size.rounds))
        row = SpreadRow(
            delay=0.0,
            load=took,
            lane=lane.name,
            widths=lane.widths,
            reason=lane.reason,
            max_context=lane.max_context,
            answers=tuple(answers),
            learned=_learned(generator),
        )
        return SpreadAnswers(row, prompts, lane.setting, lane.prefill_block or options.batch_size)
    finally:
        subject.close()


def paired(
    generator: Generator, request: GenerationRequest, workload: Workload, mode: Mode, rounds: int
) -> SpreadAnswer:
    """`request` answered plainly and with drafts, `rounds` times each; every other pair begins with the drafts."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    given: list[tuple[int, ...]] = []
    drafted = accepted = 0
    for turn in range(rounds):
        for speculate in (False, True) if turn % 2 == 0 else (True, False):
            answer = answered(generator, replace(request, speculate=speculate))
            given.append(answer.tokens)
            timings = answer.outcome.timings
            rates[speculate].append(1000 * timings.predicted_n / timings.predicted_ms if timings.predicted_ms else 0.0)
            drafted, accepted = drafted + timings.draft_n, accepted + timings.draft_n_accepted
    return SpreadAnswer(
        workload=workload.name,
        kind=workload.kind,
        mode=mode.name,
        ids=given[0],
        plain=tuple(rates[False]),
        speculative=tuple(rates[True]),
        drafted=drafted,
        accepted=accepted,
        equal=len(set(given)) == 1,
    )


def _learned(generator: Generator) -> tuple[LearnedCost, ...]:
    costs = generator.explain()["model_of_costs"]["costs"]
    return tuple(
        LearnedCost(row["width"], row["context"][0], round(row["plain_steps"], 3), row["samples"])
        for row in costs
        if row["measured_here"] and row["plain_steps"]
    )
