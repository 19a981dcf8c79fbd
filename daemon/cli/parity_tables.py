"""A parity run's result for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.lab.parity_runs import Trial
from pilotfish.daemon.lab.parity_together import JointTrial

Result = Trial | JointTrial
R = TypeVar("R", Trial, JointTrial)


def write_json(results: Sequence[Result], missing: Mapping[str, str]) -> None:
    """One object on stdout."""
    unequal = sum(not result.equal for result in results)
    document = {"equal": not unequal, "differences": unequal, "missing": dict(missing)}
    click.echo(json.dumps({**document, "trials": [result.to_json() for result in results]}))


def show(results: Sequence[Result], missing: Mapping[str, str], console: Console) -> None:
    """The lanes, a table, every answer that differs, and the verdict."""
    for model, lane in dict.fromkeys((result.model, result.lane) for result in results):
        console.print(f"{model}: {lane}", markup=False)
    trials = [result for result in results if isinstance(result, Trial)]
    joint = [result for result in results if isinstance(result, JointTrial)]
    tables = [_joint_table(group) for group in _groups(joint, lambda t: (t.model, t.prompts))]
    for table in tables or [_table(trials)]:
        console.print(table)
    unequal = [result for result in results if not result.equal]
    for result in unequal:
        console.print(f"[red]differs[/] at token {result.differs_at}: {escape(result.label)}", soft_wrap=True)
    for title, why in missing.items():
        console.print(f"[yellow]{title} was left out[/]: {escape(why)}", soft_wrap=True)
    verdict = "[green]every id is equal[/]" if not unequal else f"[red]{len(unequal)} answers differ[/]"
    console.print(f"{verdict}: {counted(results)}, compared with {_reference(joint)}", soft_wrap=True)


def counted(results: Sequence[Result]) -> str:
    """How much was compared."""
    kind = "answers beside others" if results and isinstance(results[0], JointTrial) else "speculative answers"
    return f"{len(results)} {kind}, {sum(result.tokens for result in results)} tokens"


def _reference(joint: Sequence[JointTrial]) -> str:
    return "plain decoding, one after the other" if joint else "plain decoding"


def _table(trials: Sequence[Trial]) -> Table:
    table = _with_columns(("weights", "prompts", "length", "sampling", "drafter"), COUNTS)
    for group in _groups(trials, lambda t: (t.model, t.prompts, t.depth, t.mode, t.contender)):
        first = group[0]
        lengths = _span([trial.prompt for trial in group])
        table.add_row(first.model, first.prompts, lengths, first.mode, first.contender, *_counts(group))
    return table


def _joint_table(trials: Sequence[JointTrial]) -> Table:
    """Of one way of reading prompts; narrow enough for a terminal of 80 columns."""
    table = _with_columns(("drafts",), ("answers", "tokens", "accepted", "shared", "back", "lost", "unequal"))
    table.title = f"{trials[0].model}, prompts {trials[0].prompts}"
    table.caption = "shared: rounds in one forward with others; back, lost: conversations put aside"
    for group in _groups(trials, lambda t: t.drafting):
        mixes = list({trial.mix: trial for trial in group}.values())
        memory = sum(t.restored for t in mixes), sum(t.forgotten for t in mixes)
        answers, tokens, drafted, accepted, unequal = _counts(group)
        counts = map(str, (sum(t.shared for t in group), *memory))
        table.add_row(group[0].drafting, answers, tokens, f"{accepted}/{drafted}", *counts, unequal)
    return table


COUNTS = ("answers", "tokens", "drafted", "accepted", "unequal")


def _counts(group: Sequence[Result]) -> tuple[str, ...]:
    sums = (sum(t.tokens for t in group), sum(t.drafted for t in group), sum(t.accepted for t in group))
    unequal = sum(not t.equal for t in group)
    return (str(len(group)), *map(str, sums), f"[red]{unequal}[/]" if unequal else "0")


def _with_columns(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table()
    for title in texts:
        table.add_column(title)
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def _groups(trials: Sequence[R], key: Callable[[R], Hashable]) -> list[list[R]]:
    groups: dict[Hashable, list[R]] = {}
    for trial in trials:
        groups.setdefault(key(trial), []).append(trial)
    return list(groups.values())


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
