"""`pilotfish validate`: try every drafter on real prompts, compare every id, and say what it cost and saved."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import ENGINES, Config
from pilotfish.daemon.drafters.promotions import Promotions
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.prompt_beginnings import PromptBeginning, beginning_of
from pilotfish.daemon.lab.receipts.receipt_folder import write_receipt
from pilotfish.daemon.lab.receipts.receipt_plots import MISSING, can_plot
from pilotfish.daemon.lab.receipts.receipt_report import REPORT, report
from pilotfish.daemon.lab.receipts.receipt_summary import SUMMARY, summary
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, RunVerdict
from pilotfish.daemon.lab.receipts.redaction import redacted
from pilotfish.daemon.lab.subjects import any_model_path, engine_of, stock_lane
from pilotfish.daemon.lab.validation.checked_prompts import AskedPrompt, checked, load_prompts, refusals_of_texts
from pilotfish.daemon.lab.validation.control_ollama import ControlOllama
from pilotfish.daemon.lab.validation.promoting import settle_promotions
from pilotfish.daemon.lab.validation.trial_asking import drafters_of
from pilotfish.daemon.lab.validation.trial_plan import INTERLEAVED, ORDERS, TrialPlan, lengths_of
from pilotfish.daemon.lab.validation.validation_course import ValidationCourse
from pilotfish.daemon.lab.workloads import MODES, Mode
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import EngineOptions


@dataclass(frozen=True, slots=True)
class ValidationWish:
    """What the command line asks for."""

    model: str
    path: Path
    config: Config
    prompts: list[AskedPrompt]
    plan: TrialPlan
    mode: Mode
    engine: str
    options: EngineOptions
    controls: tuple[str, ...]
    unsafe_lane: bool
    beginning: PromptBeginning


@click.command("validate")
@click.argument("model", default="smollm2:135m")
@click.option("--execute", is_flag=True, help="Do it; without this the plan and its cost are printed.")
@click.option("--prompts-file", type=click.Path(path_type=Path), help="Prompts: `workloads` (chats), `raw` (as is).")
@click.option("--tokens", type=click.IntRange(1, 4096), default=64, show_default=True, help="Tokens per answer.")
@click.option(
    "--draft-lengths", default="2,4,8", show_default=True, help="Lengths of proposals; auto: the controller's."
)
@click.option("--repeats", type=click.IntRange(1, 100), default=2, show_default=True, help="Of every question.")
@click.option("--drafters", help="Which drafters, with commas; the config's by default.")
@click.option("--oracle-cases", is_flag=True, help="Also drafters made to be right, wrong, cut off and aborted.")
@click.option(
    "--control",
    "controls",
    multiple=True,
    metavar="URL",
    help="An Ollama, ordinary or overlaid, compared by bytes and counts; may be repeated.",
)
@click.option("--order", type=click.Choice(ORDERS), default=INTERLEAVED, show_default=True, help="Of the trials.")
@click.option("--output", type=click.Path(path_type=Path), help="The receipt's folder: new, or empty.")
@click.option(
    "--unsafe-lane", is_flag=True, help="Stock settings in every width, where ids do differ: a check of this."
)
@click.option("--redact", is_flag=True, help="Leave prompts, answers, paths and addresses out of the receipt.")
@click.option("--mode", type=click.Choice([mode.name for mode in MODES]), default="greedy", help="How to sample.")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads of the engine.")
@click.option("--context", type=click.IntRange(64, 1 << 20), default=4096, show_default=True, help="Tokens of context.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="What computes; the config's choice by default.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(
    model: str,
    execute: bool,
    prompts_file: Path | None,
    tokens: int,
    draft_lengths: str,
    repeats: int,
    drafters: str | None,
    oracle_cases: bool,
    controls: tuple[str, ...],
    order: str,
    output: Path | None,
    unsafe_lane: bool,
    redact: bool,
    mode: str,
    threads: int | None,
    context: int,
    engine: str | None,
    root: Path | None,
) -> None:
    """Qualify drafters for MODEL: is every id the plain one, and is it faster?

    The plan and its cost are printed, and with --execute it is run: every answer reads its prompt anew and goes into a
    receipt, a folder with ids, rounds, times and sums. `passed` means: no comparison of ids failed, and a drafter
    reached the config's `[promotion]` thresholds. The exit code is 1 where ids differ or an answer ended with an error.
    Ctrl-C ends a run with a receipt of what was answered until then, which promotes nothing, and exit code 130.
    """
    config, prompts, path = files.load().for_model(model), load_prompts(prompts_file), any_model_path(model, root)
    plan = TrialPlan(
        prompts=tuple(prompt.name for prompt in prompts),
        drafters=_tables(config, drafters),
        lengths=lengths_of(draft_lengths),
        repeats=repeats,
        tokens=tokens,
        oracle_cases=oracle_cases,
        controls=len(dict.fromkeys(controls)),
        order=order,
    )
    wish = ValidationWish(
        model=model,
        path=path,
        config=config,
        prompts=prompts,
        plan=plan,
        mode=next(one for one in MODES if one.name == mode),
        engine=engine_of(path, engine, config),
        options=EngineOptions(n_ctx=context, threads=threads),
        controls=tuple(dict.fromkeys(controls)),
        unsafe_lane=unsafe_lane,
        beginning=beginning_of(path, state_dir()),
    )
    _refuse(wish)
    _tell_plan(wish)
    if not execute:
        out.print("nothing was run; --execute --output FOLDER does it")
        return
    if output is None:
        raise UsageError("--execute: where is the receipt to go? Name a new folder with --output")
    if controls and model.endswith(".gguf"):
        raise UsageError("--control: an Ollama knows models by their names; give MODEL as it is called there")
    for url in wish.controls:
        asyncio.run(ControlOllama(url, model, context).ready())
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"--output {output}: it is no folder, or not empty; name a new one")
    output.mkdir(parents=True, exist_ok=True)  # before the run, which may take hours
    sys.exit(_validate(wish, output, redact=redact))


def _tables(config: Config, drafters: str | None) -> dict[str, dict[str, object]]:
    names = (
        config.drafters.order if drafters is None else [name.strip() for name in drafters.split(",") if name.strip()]
    )
    return {name: dict(config.drafters.tables.get(name, {})) for name in names}


def _refuse(wish: ValidationWish) -> None:
    """What is known to fail before anything is loaded. Raises UsageError and EngineError."""
    if wrong := list(refusals_of_texts(wish.prompts, wish.beginning)):
        raise UsageError("nothing was run: " + "; ".join(wrong))
    drafters_of(Registry.load(wish.config), wish.plan.drafters)


def _tell_plan(wish: ValidationWish) -> None:
    plan = wish.plan
    drafters = ", ".join(plan.drafters) or "none"
    lines = [
        f"{wish.model} on {wish.engine}{', stock settings in every width (unsafe)' if wish.unsafe_lane else ''}",
        f"{len(plan.prompts)} prompts ({', '.join(plan.prompts)}), {plan.repeats} repeats, {plan.order}",
        f"drafters: {drafters}; proposals of {', '.join(plan.lengths)} tokens, as far as the lane holds them",
        f"cost: {plan.cost()}; the model is loaded once, with a context of {wish.options.n_ctx} tokens",
    ]
    lines += [f"the Ollama at {url} is asked the same, compared by bytes and counts" for url in wish.controls]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _validate(wish: ValidationWish, output: Path, *, redact: bool) -> int:
    """Run it, write the receipt and then the promotions, which rest on it; the exit code."""
    started = time.monotonic()
    subject = Subject.load(
        wish.path,
        state_dir(),
        title=wish.model,
        verifier=wish.engine,
        lane=stock_lane(wish.engine) if wish.unsafe_lane else None,
        options=wish.options,
        certified=True,
        plugins=wish.config.plugins,
    )
    try:
        course = _course(wish, subject, time.monotonic() - started)
        receipt = _followed(course)
        _write(redacted(receipt) if redact else receipt, output)
        if receipt.verdict is RunVerdict.FAILED or not course.stopped:  # a part of a run takes nothing back
            for line in settle_promotions(Promotions(state_dir()), subject, receipt, str(output.absolute())):
                out.print(line, markup=False, soft_wrap=True)
    finally:
        subject.close()
    if receipt.verdict is RunVerdict.FAILED:
        return 1
    return 130 if course.stopped else 0


def _course(wish: ValidationWish, subject: Subject, load_seconds: float) -> ValidationCourse:
    prompts = "lane" if wish.unsafe_lane else wish.config.engine.prompts
    subject.read_prompts(prompts)
    promotion = wish.config.promotion
    return ValidationCourse(
        subject=subject,
        model=wish.model,
        plan=wish.plan,
        prompted=checked(subject, wish.prompts, wish.beginning, wish.plan.tokens),
        mode=wish.mode,
        prompts=prompts,
        thresholds=promotion,
        speculation=wish.config.speculation,
        controls=wish.controls,
        unsafe_lane=wish.unsafe_lane,
        load_seconds=load_seconds,
    )


def _followed(course: ValidationCourse) -> Receipt:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task("validating", total=len(course.plan.trials(course.longest)))
        return course.run(lambda record: progress.update(bar, advance=1, description=record.name))


def _write(receipt: Receipt, output: Path) -> None:
    words = summary(receipt)
    write_receipt(output, receipt, {SUMMARY: words, REPORT: report(receipt)})
    out.print(words, markup=False, soft_wrap=True, end="")
    if not can_plot():
        out.print(MISSING, style="yellow", markup=False, soft_wrap=True)
    out.print(f"receipt: {output}; `pilotfish receipt verify {output}`", markup=False, soft_wrap=True)
