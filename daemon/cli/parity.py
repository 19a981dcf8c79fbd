"""`pilotfish parity`: compare the ids of plain and speculative answers, with every kind of drafter."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import ENGINES
from pilotfish.daemon.lab.parity_runs import N_CONTENDERS, Subject, Trial, contenders_for, contenders_of, run_parity
from pilotfish.daemon.lab.subjects import FULL, model_path, stock_lane, variant
from pilotfish.daemon.lab.workloads import MODES, load_workloads
from pilotfish.hooks.types import EngineOptions


@click.command("parity")
@click.argument("model", default="smollm2:135m")
@click.option("--full", is_flag=True, help=f"256 tokens, with the weights requantized to {', '.join(FULL)}.")
@click.option("--tokens", type=click.IntRange(1, 3000), help="Tokens per answer. Default: 64, or 256 with --full.")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads of the engine.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="What computes; the config's choice by default.")
@click.option("--drafter", "drafters", multiple=True, help="Also this drafter, as the config has it; may be repeated.")
@click.option("--control", is_flag=True, help="The control: stock settings and every width. Differences are expected.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--workloads", "workload_file", type=click.Path(path_type=Path), help="Another workload file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a table.")
def command(
    model: str,
    full: bool,
    tokens: int | None,
    threads: int | None,
    engine: str | None,
    drafters: tuple[str, ...],
    control: bool,
    root: Path | None,
    workload_file: Path | None,
    as_json: bool,
) -> None:
    """Answer the workloads plainly and with drafters that are right, wrong and in between, and compare every id."""
    source = model_path(model, root)
    workloads = load_workloads(workload_file)
    kinds: Sequence[str | None] = FULL if full else (None,)
    options = EngineOptions(threads=threads)
    settings = files.load()
    engine = engine or settings.engines[0]
    own = contenders_of(settings, drafters)
    trials: list[Trial] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        total = len(kinds) * len(workloads) * len(MODES) * (N_CONTENDERS + len(own))
        task = progress.add_task("loading", total=total)
        for kind in kinds:
            progress.update(task, description=f"loading {model} {kind or ''}")
            path = variant(source, kind) if kind else source
            subject = Subject.load(
                path,
                state_dir(),
                verifier=engine,
                lane=stock_lane(engine) if control else None,
                options=options,
                certified=not full,
                plugins=settings.plugins,
            )
            n = tokens or (256 if full else 64)
            contenders = (*contenders_for(subject.engine.lane), *own)
            for trial in run_parity(subject, workloads, MODES, n_predict=n, contenders=contenders):
                trials.append(trial)
                progress.update(task, advance=1, description=f"{trial.model}, {trial.workload}, {trial.mode}")
            subject.close()
    _report(trials, as_json)
    sys.exit(0 if all(trial.equal for trial in trials) else 1)


def _report(trials: Sequence[Trial], as_json: bool) -> None:
    unequal = [trial for trial in trials if not trial.equal]
    if as_json:
        document = {"equal": not unequal, "differences": len(unequal), "trials": [trial.to_json() for trial in trials]}
        click.echo(json.dumps(document))
        return
    for model, lane in dict.fromkeys((trial.model, trial.lane) for trial in trials):
        out.print(f"{model}: {lane}", markup=False)
    out.print(_table(trials))
    for trial in unequal:
        where = f"{trial.model}, {trial.workload}, {trial.mode}, {trial.contender}"
        out.print(f"[red]differs[/] at token {trial.differs_at}: {where}")
    verdict = "[green]every id is equal[/]" if not unequal else f"[red]{len(unequal)} answers differ[/]"
    tokens = sum(trial.tokens for trial in trials)
    out.print(f"{verdict}: {len(trials)} speculative answers, {tokens} tokens, compared with plain decoding")


def _table(trials: Sequence[Trial]) -> Table:
    table = Table()
    for title in ("weights", "sampling", "drafter"):
        table.add_column(title)
    for title in ("answers", "tokens", "drafted", "accepted", "unequal"):
        table.add_column(title, justify="right")
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.model, trial.mode, trial.contender), []).append(trial)
    for key, group in groups.items():
        sums = (sum(t.tokens for t in group), sum(t.drafted for t in group), sum(t.accepted for t in group))
        unequal = sum(not t.equal for t in group)
        table.add_row(*key, str(len(group)), *map(str, sums), f"[red]{unequal}[/]" if unequal else "0")
    return table
