"""`pilotfish compare`: every way to speculate that this machine has, with and without, and which to take."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import psutil
from rich import filesize
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.config.types import ENGINES, Config
from pilotfish.daemon.lab.approaches.advice import Advice, advice_on
from pilotfish.daemon.lab.approaches.approach import Approach, ApproachResult
from pilotfish.daemon.lab.approaches.approach_course import ApproachCourse
from pilotfish.daemon.lab.approaches.approaches_here import Machinery, approaches_here
from pilotfish.daemon.lab.bench_bed import bring_certificates, render, run_state
from pilotfish.daemon.lab.bench_quiet import QuietWatch
from pilotfish.daemon.lab.bench_systems import Bed, System
from pilotfish.daemon.lab.bench_tasks import FIRST
from pilotfish.daemon.lab.engines_here import engine_for
from pilotfish.daemon.lab.llama_server import find_llama_server, speculative_modes
from pilotfish.daemon.lab.subjects import model_path
from pilotfish.daemon.lab.workloads import MODES, Workload, among, load_workloads
from pilotfish.hooks.errors import BrokenModel, ModelNotFound, UsageError
from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import Audit, audit_model
from pilotfish.manifests.draft_layers import why_not_a_model
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.store import Store


@click.command("compare")
@click.argument("model", default="smollm2:135m")
@click.option("--small", default="", metavar="MODEL", help="The small model to draft with: a name, or a .gguf file.")
@click.option("--llama-server", "server", type=click.Path(path_type=Path), help="A stock server, for its own modes.")
@click.option("--only", multiple=True, metavar="APPROACH", help="Only this approach; may be repeated.")
@click.option("--prompts-file", type=click.Path(path_type=Path), help="Another workload file.")
@click.option("--task", "tasks", multiple=True, help="Only this workload; may be repeated.")
@click.option("--tokens", type=click.IntRange(2, 3000), default=64, show_default=True, help="Tokens per answer.")
@click.option("--repeats", type=click.IntRange(1, 100), default=1, show_default=True, help="Of every prompt.")
@click.option("--threads", type=click.IntRange(1, 256), help="Of every engine; the physical cores by default.")
@click.option("--context", type=click.IntRange(64), default=2048, show_default=True, help="Tokens of context.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Of ours; the config's choice by default.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def command(
    model: str,
    small: str,
    server: Path | None,
    only: tuple[str, ...],
    prompts_file: Path | None,
    tasks: tuple[str, ...],
    tokens: int,
    repeats: int,
    threads: int | None,
    context: int,
    engine: str | None,
    root: Path | None,
    as_json: bool,
) -> None:
    """Run MODEL with every approach that can be had here, on the same prompts, each beside plain decoding.

    Rates with and without, memory with and without, and a recommendation, of which "do not speculate" is one. One
    approach at a time: two servers are loaded at once. Close everything else first.
    """
    config = files.load().without_far_ends  # what it is compared with is here, too
    machinery = _machinery(config, model, small, server, engine, root)
    approaches, missing = approaches_here(machinery)
    threads = threads or psutil.cpu_count(logical=False) or 1
    workloads = among(load_workloads(prompts_file), tasks, "--task")
    with tempfile.TemporaryDirectory(prefix="pf-compare-") as folder:
        bed = Bed(model_path(model, root), model, threads, context, config, Path(folder), run_state())
        chosen = _chosen(approaches, only)
        results = asyncio.run(_measured(chosen, approaches[0].plain, bed, workloads, tokens, repeats))
    advice = advice_on(results)
    if as_json:
        rows = [{**asdict(one), "gain": one.gain} for one in results]
        click.echo(json.dumps({"approaches": rows, "left_out": missing, "advice": asdict(advice)}))
    else:
        _show(results, {} if only else missing, advice)


def _machinery(
    config: Config, model: str, small: str, server: Path | None, engine: str | None, root: Path | None
) -> Machinery:
    found = find_llama_server(server)
    bundled, layer = _bundled(model, root)
    return Machinery(
        config=config,
        engine=engine or engine_for(config),
        small=str(Path(small).absolute()) if small.endswith(".gguf") else small,
        small_path=model_path(small, root) if small else None,
        server=found,
        server_modes=speculative_modes(found) if found else (),
        audit=bundled,
        assistant=layer,
        why_no_model=_why_no_model(layer, model) if layer else "",
    )


def _bundled(model: str, root: Path | None) -> tuple[Audit, Path | None]:
    """What the model bundles, and its draft layer if it has one; nothing is known of a bare file."""
    store = Store.find(root)
    try:
        manifest = store.manifest(model)
    except (ModelNotFound, UsageError):
        return Audit(), None
    blobs = [store.blob(layer, model) for layer in manifest.of_type(media.MODEL)]
    layer = next((store.blob(layer, model) for layer in manifest.of_type(media.DRAFT)), None)
    return audit_model(store, manifest, tuple(read_metadata(blob, model) for blob in blobs)), layer


def _why_no_model(layer: Path, model: str) -> str:
    try:
        return why_not_a_model(layer, model)
    except BrokenModel as error:
        return str(error)


def _chosen(approaches: Sequence[Approach], only: Sequence[str]) -> list[Approach]:
    titles = [approach.title for approach in approaches]
    for title in only:
        if title not in titles:
            raise UsageError(f"--only {title}: cannot be run here; there are {', '.join(titles)}")
    return [approach for approach in approaches if not only or approach.title in only]


async def _measured(
    approaches: Sequence[Approach],
    ours: System,
    bed: Bed,
    workloads: Sequence[Workload],
    tokens: int,
    repeats: int,
) -> list[ApproachResult]:
    """`ours` is plain pilotfish, which renders the prompts."""
    results: list[ApproachResult] = []
    with err.status("looking for certificates") as status:
        await asyncio.to_thread(bring_certificates, bed, [ours.engine], make=False, report=status.update)
        status.update("rendering the prompts")
        prompts = await render([ours], bed, workloads, MODES[:1], tokens)
        asked = [task for task in prompts.tasks if task.again == FIRST]
        watch = QuietWatch(lambda text: err.print(f"Warning: {text}", style="yellow", markup=False, soft_wrap=True))
        course = ApproachCourse(asked, prompts.warm_up, repeats, bed, watch, status.update)
        for approach in approaches:
            results.append(await course.measured(approach))
    return results


def _show(results: Sequence[ApproachResult], missing: dict[str, str], advice: Advice) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("approach", overflow="fold")
    for title in (
        "tok/s\nplain",
        "tok/s\nwith it",
        "\ngain",
        "memory\nplain",
        "memory\nwith it",
        "\naccepted",
        "equal\nids",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    plain = max((one for one in results if one.rate_without), key=lambda one: one.rate_without or 0.0, default=None)
    if plain:
        table.add_row(
            "no drafts", _number(plain.rate_without, ".1f"), "-", "-", _size(plain.memory_without), "-", "-", "-"
        )
    for one in (one for one in results if not one.trouble):
        equal = f"{one.equal}/{one.compared}" if one.exact else f"[red]{one.equal}/{one.compared}[/]"
        rates = (_number(one.rate_without, ".1f"), _number(one.rate_with, ".1f"), _number(one.gain, ".2f", "x"))
        memory = (_size(one.memory_without), _size(one.memory_with))
        table.add_row(one.title, *rates, *memory, _number(one.acceptance, ".0%"), equal)
    out.print(table)
    for title, why in [*((one.title, one.trouble) for one in results if one.trouble), *missing.items()]:
        out.print(f"[yellow]{escape(title)}[/]: {escape(why)}", soft_wrap=True)
    out.print(f"[bold]{escape(advice.take or 'do not speculate')}[/]: {escape(advice.reason)}", soft_wrap=True)


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def _size(value: int | None) -> str:
    return "-" if value is None else filesize.decimal(value)
