"""`pilotfish parity`: compare the ids of plain and speculative answers, with every kind of drafter."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.cli.parity_tables import counted, show, write_json
from pilotfish.daemon.config import files
from pilotfish.daemon.config.types import ENGINES
from pilotfish.daemon.lab.engines_here import engine_for
from pilotfish.daemon.lab.parity_course import ParityCourse
from pilotfish.daemon.lab.parity_runs import Trial, contenders_of
from pilotfish.daemon.lab.subjects import FULL, WINDOWED, Weights, full_set, model_path
from pilotfish.daemon.lab.workloads import MODES, among, load_workloads
from pilotfish.hooks.types import EngineOptions

DEPTHS, FULL_DEPTHS = (0,), (0, 2000)
TOKENS, FULL_TOKENS = 64, 256


def _depths(context: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of token counts, such as 0,2000", context, option)
    return tuple(dict.fromkeys(int(part) for part in parts))


@click.command("parity")
@click.argument("model", default="smollm2:135m")
@click.option("--full", is_flag=True, help=f"MODEL as {', '.join(FULL)}, and {WINDOWED}; more tokens, both depths.")
@click.option("--tokens", type=click.IntRange(1, 3000), help=f"Tokens per answer: {TOKENS}, {FULL_TOKENS} with --full.")
@click.option("--depth", "depths", metavar="N,N", callback=_depths, help="Tokens of text before a task: 0, or 0,2000.")
@click.option("--task", "tasks", multiple=True, help="Only this workload; may be repeated.")
@click.option("--mode", "modes", multiple=True, help="Only this way of sampling: greedy or seeded.")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads of the engine.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="What computes; the config's choice by default.")
@click.option("--drafter", "drafters", multiple=True, help="Also this drafter, as the config has it; may be repeated.")
@click.option("--control", is_flag=True, help="The control: stock settings and every width. Differences are expected.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--workloads", "workload_file", type=click.Path(path_type=Path), help="Another workload file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a table.")
@click.option("--jsonl", "log", type=click.File("a"), help="Append every answer to this file once it is compared.")
def command(
    model: str,
    full: bool,
    tokens: int | None,
    depths: tuple[int, ...] | None,
    tasks: tuple[str, ...],
    modes: tuple[str, ...],
    threads: int | None,
    engine: str | None,
    drafters: tuple[str, ...],
    control: bool,
    root: Path | None,
    workload_file: Path | None,
    as_json: bool,
    log: TextIO | None,
) -> None:
    """Answer the workloads plainly and with drafters that are right, wrong and in between, and compare every id.

    With --full that takes hours: --jsonl keeps what is done, and --task, --mode and --depth divide the work.
    """
    source = model_path(model, root)
    workloads = load_workloads(workload_file)
    settings = files.load()
    course = ParityCourse(
        weights=full_set(source) if full else (Weights("", lambda: source),),
        workloads=among(workloads, tasks, "--task"),
        modes=among(MODES, modes, "--mode"),
        depths=depths or (FULL_DEPTHS if full else DEPTHS),
        texts=workloads,
        n_predict=tokens or (FULL_TOKENS if full else TOKENS),
        engine=engine or engine_for(settings),
        options=EngineOptions(threads=threads),
        control=control,
        certified=not full,
        drafters=contenders_of(settings, drafters),
        plugins=settings.plugins,
    )
    trials = _followed(course, log)
    if as_json:
        write_json(trials, course.missing)
    else:
        show(trials, course.missing, out)
    sys.exit(0 if all(trial.equal for trial in trials) else 1)


def _followed(course: ParityCourse, log: TextIO | None) -> list[Trial]:
    """Run it: a bar for a terminal, a line for each model and depth that is done, a line in `log` for each answer."""
    trials: list[Trial] = []
    done: list[Trial] = []  # of the model and depth at hand
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task("loading", total=course.total)
        for trial in course.run(lambda what: progress.update(bar, description=what)):
            if done and (done[0].model, done[0].depth) != (trial.model, trial.depth):
                _tell(done)
                done = []
            done.append(trial)
            trials.append(trial)
            progress.advance(bar)
            if log is not None:
                log.write(json.dumps(trial.to_json()) + "\n")
                log.flush()
        _tell(done)
    return trials


def _tell(done: Sequence[Trial]) -> None:
    unequal = sum(not trial.equal for trial in done)
    where = f"{done[0].model}, after {done[0].depth} tokens of text"
    err.print(f"{where}: {counted(done)}, {unequal} unequal", style="dim", markup=False, soft_wrap=True)
