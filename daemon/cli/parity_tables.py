"""A parity run's result for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from pilotfish.daemon.lab.parity_runs import Trial


def write_json(trials: Sequence[Trial], missing: Mapping[str, str]) -> None:
    """One object on stdout."""
    unequal = sum(not trial.equal for trial in trials)
    document = {"equal": not unequal, "differences": unequal, "missing": dict(missing)}
    click.echo(json.dumps({**document, "trials": [trial.to_json() for trial in trials]}))


def show(trials: Sequence[Trial], missing: Mapping[str, str], console: Console) -> None:
    """The lanes, a table, every answer that differs, and the verdict."""
    for model, lane in dict.fromkeys((trial.model, trial.lane) for trial in trials):
        console.print(f"{model}: {lane}", markup=False)
    console.print(_table(trials))
    unequal = [trial for trial in trials if not trial.equal]
    for trial in unequal:
        where = f"{trial.model}, {trial.workload}, {trial.mode}, {trial.contender}, prompt of {trial.prompt}"
        console.print(f"[red]differs[/] at token {trial.differs_at}: {where}")
    for title, why in missing.items():
        console.print(f"[yellow]{title} was left out[/]: {escape(why)}", soft_wrap=True)
    verdict = "[green]every id is equal[/]" if not unequal else f"[red]{len(unequal)} answers differ[/]"
    console.print(f"{verdict}: {counted(trials)}, compared with plain decoding")


def counted(trials: Sequence[Trial]) -> str:
    """How much was compared."""
    return f"{len(trials)} speculative answers, {sum(trial.tokens for trial in trials)} tokens"


def _table(trials: Sequence[Trial]) -> Table:
    table = Table()
    table.add_column("weights")
    table.add_column("prompt", justify="right")
    for title in ("sampling", "drafter"):
        table.add_column(title)
    for title in ("answers", "tokens", "drafted", "accepted", "unequal"):
        table.add_column(title, justify="right")
    groups: dict[tuple[str, int, str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.model, trial.depth, trial.mode, trial.contender), []).append(trial)
    for (model, _, mode, contender), group in groups.items():
        sums = (sum(t.tokens for t in group), sum(t.drafted for t in group), sum(t.accepted for t in group))
        unequal = sum(not t.equal for t in group)
        prompts = _span([trial.prompt for trial in group])
        marked = f"[red]{unequal}[/]" if unequal else "0"
        table.add_row(model, prompts, mode, contender, str(len(group)), *map(str, sums), marked)
    return table


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
