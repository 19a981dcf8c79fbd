"""`pilotfish parity`: compare the ids of plain and speculative answers, with every kind of drafter, and together."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.cli.parity_beside import OLLAMA_DEPTHS, compare_ollamas
from pilotfish.daemon.cli.parity_tables import Result, counted, show, write_json
from pilotfish.daemon.config import files
from pilotfish.daemon.config.types import ENGINES, PROMPTS, Config
from pilotfish.daemon.lab.parity_course import WAYS, ParityCourse
from pilotfish.daemon.lab.parity_mixes import N_MIXES, SLOTS
from pilotfish.daemon.lab.parity_pins import Compared, read_results
from pilotfish.daemon.lab.parity_runs import Trial
from pilotfish.daemon.lab.parity_subject import contenders_of
from pilotfish.daemon.lab.parity_together import JointCourse, JointTrial
from pilotfish.daemon.lab.subjects import FULL, WINDOWED, Weights, any_model_path, engine_of, full_set, is_tensor_model
from pilotfish.daemon.lab.workloads import MODES, among, load_workloads
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import EngineOptions

DEPTHS, FULL_DEPTHS, JOINT_DEPTHS = (0,), (0, 2000), (0, 0, 0, 600)
TOKENS, FULL_TOKENS = 64, 256
JOINT_TOKENS, FULL_JOINT_TOKENS = 32, 128

HOW_MANY = (
    f"Tokens per answer: {TOKENS}, {FULL_TOKENS} with --full; together {JOINT_TOKENS}, {FULL_JOINT_TOKENS}; "
    f"{JOINT_TOKENS} with --ollama."
)

Course = ParityCourse | JointCourse
R = TypeVar("R", Trial, JointTrial)


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
@click.option(
    "--weights",
    "only",
    type=click.Choice((*FULL, WINDOWED)),
    multiple=True,
    help="Of --full, only these; may be repeated.",
)
@click.option("--together", is_flag=True, help=f"Chats {SLOTS} at a time in {N_MIXES} mixes, compared with each alone.")
@click.option("--ollama", is_flag=True, help="Your Ollama beside the overlaid one, drafting in every way.")
@click.option("--overlay", type=click.Path(path_type=Path), help="With --ollama: the overlay's folder; your own else.")
@click.option("--cache-type", metavar="TYPE", help="With --ollama: of both servers' caches, such as q8_0.")
@click.option("--mixes", type=click.IntRange(1, N_MIXES), help=f"With --together: this many mixes; {N_MIXES}.")
@click.option("--tokens", type=click.IntRange(1, 3000), help=HOW_MANY)
@click.option("--depth", "depths", metavar="N,N", callback=_depths, help="Text before a task, in tokens: 0, or 0,2000.")
@click.option(
    "--prompts",
    type=click.Choice(PROMPTS),
    multiple=True,
    help="How prompts are read; may be repeated. The config's way by default, both with --full or --together.",
)
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
@click.option(
    "--resume", is_flag=True, help="Do not ask again what --jsonl's file has, for the same model and settings."
)
def command(
    model: str,
    full: bool,
    only: tuple[str, ...],
    together: bool,
    ollama: bool,
    overlay: Path | None,
    cache_type: str | None,
    mixes: int | None,
    tokens: int | None,
    depths: tuple[int, ...] | None,
    prompts: tuple[str, ...],
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
    resume: bool,
) -> None:
    """Answer the workloads plainly and with drafters that are right, wrong and in between, and compare every id.

    With --full that takes hours: --jsonl keeps what is done, --resume goes on from there, and --task, --mode, --depth,
    --prompts and --weights divide the work.

    With --together the workloads are chats of two turns, four at a time, with speculation on, off and mixed, and with
    conversations put aside and brought back in between; each is compared with itself alone.

    With --ollama the workloads are chats of two turns, one after the other, under your Ollama and the overlaid one.
    """
    if resume and log is None:
        raise UsageError("--resume: from what? Name the file of the run that was broken off with --jsonl")
    if together and drafters:
        raise UsageError("--drafter has no part in --together, where chats have drafters of their own; leave one out")
    if only and not full:
        raise UsageError("--weights divides --full; name one model's file or tag instead of MODEL without it")
    if (overlay or cache_type) and not ollama:
        raise UsageError("--overlay and --cache-type are about --ollama; add it, or leave them out")
    source, workloads, settings = any_model_path(model, root), load_workloads(workload_file), files.load()
    if is_tensor_model(source) and (full or ollama):
        raise UsageError(f"--full and --ollama are for GGUF models, and {model} is an MLX model; leave them out")
    if ollama:
        _refuse_beside_ollama(full, together, mixes, control, prompts, drafters, log)
        compared = compare_ollamas(
            source,
            among(workloads, tasks, "--task"),
            among(MODES, modes, "--mode"),
            depths=depths or OLLAMA_DEPTHS,
            tokens=tokens or JOINT_TOKENS,
            engine=engine or settings.engine.choice,
            threads=threads,
            cache_type=cache_type,
            overlay=overlay,
            as_json=as_json,
        )
        sys.exit(compared)
    asked: dict[str, Any] = {
        "weights": _weights(source, only) if full else (Weights("", lambda: source),),
        "workloads": among(workloads, tasks, "--task"),
        "modes": among(MODES, modes, "--mode"),
        "texts": workloads,
        "engine": engine_of(source, engine, settings),
        "options": EngineOptions(threads=threads),
        "control": control,
        "certified": not full,
        "prompts": prompts or _prompts(settings, both=full or together, control=control),
    }
    course: Course
    if together:
        asked |= {
            "depths": depths or JOINT_DEPTHS,
            "n_predict": tokens or (FULL_JOINT_TOKENS if full else JOINT_TOKENS),
        }
        course = JointCourse(**asked, mixes=mixes or N_MIXES, compared=_compared(log, JointTrial, resume=resume))
    else:
        asked |= {"depths": depths or (FULL_DEPTHS if full else DEPTHS)}
        asked |= {"n_predict": tokens or (FULL_TOKENS if full else TOKENS), "plugins": settings.plugins}
        asked |= {"drafters": contenders_of(settings, drafters)}
        course = ParityCourse(**asked, compared=_compared(log, Trial, resume=resume))
    results = _followed(course, log)
    if as_json:
        write_json(results, course.missing)
    else:
        show(results, course.missing, out)
    sys.exit(0 if all(result.equal for result in results) else 1)


def _weights(source: Path, only: Sequence[str]) -> tuple[Weights, ...]:
    return tuple(weights for weights in full_set(source) if not only or weights.title in only)


def _refuse_beside_ollama(*others: object) -> None:
    if any(others):
        alone = "--full, --together, --mixes, --control, --prompts, --drafter and --jsonl have no part in --ollama"
        raise UsageError(f"{alone}; leave them out")


def _prompts(settings: Config, *, both: bool, control: bool) -> tuple[str, ...]:
    if control:
        return WAYS[:1]
    return WAYS if both else (settings.engine.prompts,)


def _compared(log: TextIO | None, kind: type[R], *, resume: bool) -> Compared[R]:
    """What the log's earlier lines have; a line that was broken off is ended, so that the next one is whole."""
    if log is None or not resume:
        return Compared()
    path = Path(log.name)
    compared = Compared(read_results(path, kind))
    written = path.read_bytes()
    if written and not written.endswith(b"\n"):
        log.write("\n")
    return compared


def _followed(course: Course, log: TextIO | None) -> list[Trial] | list[JointTrial]:
    """Run it: a bar for a terminal, a line for each part that is done, a line in `log` for each new answer."""
    results: list[Any] = []
    done: list[Any] = []  # of the part at hand
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task("loading", total=course.total)
        for result in course.run(lambda what: progress.update(bar, description=what)):
            if done and done[0].where != result.where:
                _tell(done)
                done = []
            done.append(result)
            results.append(result)
            progress.advance(bar)
            if log is not None and result not in course.compared:
                log.write(json.dumps(result.to_json()) + "\n")
                log.flush()
        _tell(done)
    return results


def _tell(done: Sequence[Result]) -> None:
    unequal = sum(not result.equal for result in done)
    err.print(f"{done[0].where}: {counted(done)}, {unequal} unequal", style="dim", markup=False, soft_wrap=True)
