"""`pilotfish bench`: pilotfish on each engine, stock llama-server and its n-gram modes side by side, same prompts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psutil
from click.core import ParameterSource
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config.types import ENGINES, Config
from pilotfish.hooks.errors import UsageError

if TYPE_CHECKING:
    from pilotfish.daemon.lab.bench_document import BenchResult
    from pilotfish.daemon.lab.bench_systems import System
    from pilotfish.daemon.lab.benchmark import Run
    from pilotfish.daemon.lab.workloads import Mode, Workload

QUICK_TOKENS, TOKENS, FULL_TOKENS = 64, 128, 256
FEW = 2  # workloads of a kind, unless all are wanted
SIZES = ("1b", "3b", "8b")  # of `daemon/lab/real_text/`, whose table is not loaded for the help
LIKE_FORMAT = "Q4_0"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be measured."""

    model: str
    path: Path
    systems: Sequence[System]
    workloads: Sequence[Workload]
    modes: Sequence[Mode]
    rounds: int
    tokens: int
    threads: int
    context: int
    config: Config
    certify: bool
    notes: tuple[str, ...]
    about: dict[str, Any]


@click.command("bench")
@click.argument("model", default="smollm2:135m")
@click.option("--quantization", help="Requantize the weights first, for example to Q4_0.")
@click.option("--like", type=click.Choice(SIZES), help="The same text at the cost of so many billion weights.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--workloads", "workload_file", type=click.Path(path_type=Path), help="Another workload file.")
@click.option("--task", "tasks", multiple=True, help="Only this workload; may be repeated.")
@click.option("--mode", "modes", multiple=True, help="Only this way of sampling: greedy or seeded.")
@click.option("--tokens", type=click.IntRange(2, 3000), help=f"Tokens per answer; {TOKENS}, {FULL_TOKENS} with --full.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100), help="Times everything is asked.")
@click.option("--quick", is_flag=True, help=f"A look: one round, greedy, {QUICK_TOKENS} tokens, the main systems.")
@click.option("--full", is_flag=True, help=f"All workloads, {FULL_TOKENS} tokens, and oracles: how far one could get.")
@click.option("--threads", type=click.IntRange(1, 256), help="Of every engine; the physical cores by default.")
@click.option("--context", default=2048, show_default=True, type=click.IntRange(64), help="Tokens of context.")
@click.option("--llama-server", "server", type=click.Path(path_type=Path), help="The stock server to compare with.")
@click.option("--url", "urls", multiple=True, metavar="NAME=URL", help="Another Ollama-compatible server, running.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="Only this engine of ours.")
@click.option("--only", multiple=True, help="Only this system, and what it is compared to; may be repeated.")
@click.option("--adversaries", is_flag=True, help="Also drafters that are wrong, slow, or turn wrong.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Pilotfish's config; its defaults else.")
@click.option("--certify/--no-certify", default=None, help="Certify the model first if it is not yet; not if --quick.")
@click.option("--floor", is_flag=True, help="Instead: stock Ollama beside the overlaid one, in all that one notices.")
@click.option("--agent", is_flag=True, help="Instead: a whole working session of an agent, on every way to serve it.")
@click.option("--overlay", type=click.Path(path_type=Path), help="The overlay's folder for these two; your own else.")
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON; - for stdout, without the tables.")
@click.option("--svg", type=click.Path(path_type=Path), help="Draw the chart as SVG.")
@click.option("--png", type=click.Path(path_type=Path), help="Draw the chart as PNG.")
def command(
    json_file: str | None,
    svg: Path | None,
    png: Path | None,
    floor: bool,
    agent: bool,
    overlay: Path | None,
    **options: Any,
) -> None:
    """Measure how much faster answers are, as their client sees it, and whether every id is equal.

    Close everything else first: what other processes use is measured and reported, but it still costs. On two cores
    the demo's model takes about a quarter of an hour: three rounds of two workloads of each kind, with every mode of
    stock's. --quick, which leaves these out, takes a few minutes, --full two hours. --like makes MODEL as large as one
    of 1, 3 or 8 billion weights, once, without changing what it says: so real text shows what speculation brings at
    that size.
    """
    if floor:
        from pilotfish.daemon.cli.bench_floor import measure_floor
        from pilotfish.daemon.lab.floor_bench import ROUNDS

        said = click.get_current_context().get_parameter_source("rounds") is not ParameterSource.DEFAULT
        rounds = options["rounds"] if said else 1 if options["quick"] else ROUNDS
        sys.exit(measure_floor(options["model"], options["root"], overlay, rounds, json_file))
    if agent:
        from pilotfish.daemon.cli.bench_agent import measure_agent
        from pilotfish.daemon.lab.subjects import model_path

        rounds = 1 if options["quick"] else options["rounds"]
        source = model_path(options["model"], options["root"])
        path, weights = _weights(source, options["quantization"], options["like"])
        chosen = {"only": options["only"], "modes": options["modes"]}
        sys.exit(measure_agent(path, weights, overlay, rounds, json_file, **chosen))
    from pilotfish.daemon.cli.bench_tables import show
    from pilotfish.daemon.lab.bench_chart import draw, need_matplotlib

    charts = [path for path in (svg, png) if path is not None]
    if charts:
        need_matplotlib()
    result = asyncio.run(measured(wish_of(**options)))
    if json_file:
        text = json.dumps(result.to_json(), indent=1)
        click.echo(text) if json_file == "-" else Path(json_file).write_text(text + "\n")
    for path in charts:
        draw(result, path)
    if json_file != "-":
        show(result, out)
    sys.exit(0 if result.exact else 1)


def wish_of(
    *,
    model: str,
    quantization: str | None,
    like: str | None,
    root: Path | None,
    workload_file: Path | None,
    tasks: Sequence[str],
    modes: Sequence[str],
    tokens: int | None,
    rounds: int,
    quick: bool,
    full: bool,
    threads: int | None,
    context: int,
    server: Path | None,
    urls: Sequence[str],
    engines: Sequence[str],
    only: Sequence[str],
    adversaries: bool,
    config_file: Path | None,
    certify: bool | None,
) -> Wish:
    """The options, checked. Raises UsageError for what is unknown and EngineError for what is not installed, before
    anything is started."""
    from pilotfish.daemon.config.files import load
    from pilotfish.daemon.lab.bench_systems import endpoint, pilotfish_systems
    from pilotfish.daemon.lab.engines_here import engines_here
    from pilotfish.daemon.lab.subjects import model_path
    from pilotfish.daemon.lab.workloads import MODES, among, load_workloads

    if quick and full:
        raise UsageError("--quick and --full exclude each other; leave one out")
    tokens = tokens or (FULL_TOKENS if full else TOKENS)
    if quick:
        tokens, rounds, modes = min(tokens, QUICK_TOKENS), 1, modes or ("greedy",)
    workloads = among(load_workloads(workload_file), tasks, "--task")
    config = load(config_file).without_far_ends if config_file else Config()  # what it is compared with is here, too
    stock, about, notes = _stock(server)
    found, missing = engines_here(config, engines)
    ours = [pilotfish_systems(engine, adversaries=adversaries, n_predict=tokens) for engine in found]
    systems = [*stock, *itertools.chain(*ours), *map(endpoint, urls)]
    path, weights = _weights(model_path(model, root), quantization, like)
    threads = threads or psutil.cpu_count(logical=False) or 1
    settings = {"model": model, "weights": weights, "tokens": tokens, "rounds": rounds}
    return Wish(
        model=model,
        path=path,
        systems=_chosen(systems, only, quick=quick and not adversaries, oracles=full or adversaries),
        workloads=workloads if full or tasks else few(workloads),
        modes=among(MODES, modes, "--mode"),
        rounds=rounds,
        tokens=tokens,
        threads=threads,
        context=context,
        config=config,
        certify=not quick if certify is None else certify,
        notes=(*notes, *(f"no figures of {name}: {why}" for name, why in missing.items())),
        about={**settings, "threads": threads, "context": context, **about},
    )


def few(workloads: Sequence[Workload]) -> list[Workload]:
    """The first workloads of each kind, in their order."""
    of_kind: dict[str, list[Workload]] = {}
    for workload in workloads:
        of_kind.setdefault(workload.kind, []).append(workload)
    return [workload for workload in workloads if workload in of_kind[workload.kind][:FEW]]


def _weights(source: Path, quantization: str | None, like: str | None) -> tuple[Path, str]:
    """What is loaded, made where it has to be, and what it is called in the report."""
    from pilotfish.daemon.lab.real_text.enlarged import enlarged
    from pilotfish.daemon.lab.subjects import variant

    if like is None:
        return variant(source, quantization) if quantization else source, quantization or source.stem
    kind = quantization or LIKE_FORMAT
    with err.status(f"Making a model like {like}") as status:
        return enlarged(source, like, kind, status.update), f"{kind}, like {like}"


async def measured(wish: Wish) -> BenchResult:
    """Prepare, measure, and show how far it is on stderr."""
    from pilotfish.daemon.lab.bench_bed import bring_certificates, render, run_state
    from pilotfish.daemon.lab.bench_document import BenchResult
    from pilotfish.daemon.lab.bench_quiet import QuietWatch
    from pilotfish.daemon.lab.bench_report import baseline
    from pilotfish.daemon.lab.bench_systems import PLAIN, Bed, engines_among, on_engine
    from pilotfish.daemon.lab.benchmark import Bench

    for note in wish.notes:
        _warn(note)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        Progress(TextColumn("{task.description}"), *columns, console=err, transient=True) as progress,
        tempfile.TemporaryDirectory(prefix="pf-bench-") as folder,
    ):
        bar = progress.add_task("looking for certificates", total=None)

        def starting(what: str) -> None:
            progress.update(bar, description=what)

        watch = QuietWatch(_warn)
        bed = Bed(wish.path, wish.model, wish.threads, wish.context, wish.config, Path(folder), run_state())
        certificates = await asyncio.to_thread(
            bring_certificates, bed, engines_among(wish.systems), make=wish.certify, report=starting
        )
        starting("rendering the prompts")
        prompts = await render(wish.systems, bed, wish.workloads, wish.modes, wish.tokens)
        systems = [system for system in wish.systems if system.engine not in prompts.failed]
        bench = Bench(systems, prompts.tasks, prompts.warm_up, wish.rounds, bed, watch, starting)
        bench.failures.update({on_engine(PLAIN, engine): why for engine, why in prompts.failed.items()})
        progress.update(bar, total=bench.total)
        runs = []
        async with contextlib.aclosing(bench.run()) as results:
            async for run in results:
                runs.append(run)
                progress.advance(bar)
    for name, why in bench.failures.items():
        _warn(f"{name} was left out: {why}")
    about = {**wish.about, "certificates": certificates, "lanes": _lanes(systems, runs)}
    base = baseline(systems)
    return BenchResult(systems, base, runs, about, watch.to_json(), bench.failures, wish.notes, bench.loads)


def _stock(named: Path | None) -> tuple[list[System], dict[str, Any], tuple[str, ...]]:
    from pilotfish.daemon.lab.bench_systems import stock_systems
    from pilotfish.daemon.lab.llama_server import find_llama_server, ngram_modes, version

    server = find_llama_server(named)
    if server is None:
        missing = "no stock llama-server was found, so there is none to compare with: `make stock` builds one"
        return [], {"llama_server": None}, (missing,)
    return stock_systems(server, ngram_modes(server)), {"llama_server": version(server)}, ()


def _chosen(systems: Sequence[System], only: Sequence[str], *, quick: bool, oracles: bool) -> list[System]:
    """The systems named, in full or by their part on any engine; those that they are compared to, and what renders."""
    from pilotfish.daemon.lab.bench_systems import CEILING, PLAIN, SPECULATIVE, STOCK

    if not only:
        main = [s for s in systems if s.name == STOCK or s.part in (PLAIN, SPECULATIVE) or s.url]
        return main if quick else [s for s in systems if oracles or s.part != CEILING]
    for name in only:
        if not any(name in (system.name, system.part) for system in systems):
            raise UsageError(f"--only {name}: unknown; there are {', '.join(system.name for system in systems)}")
    wanted = [system for system in systems if {system.name, system.part} & {*only}]
    needed = {name for system in wanted for name in (system.name, system.reference)} | {STOCK}
    if not any(system.engine for system in wanted):
        needed.add(next(system.name for system in systems if system.part == PLAIN))
    return [system for system in systems if system.name in needed]


def _lanes(systems: Sequence[System], runs: Sequence[Run]) -> dict[str, str]:
    """The lane that each engine was in, as its answers say; "" where none was asked."""
    lanes = {system.engine: "" for system in systems if system.engine}
    engine_of = {system.name: system.engine for system in systems}
    return lanes | {engine_of[run.system]: run.answer.lane for run in runs if run.answer.lane and engine_of[run.system]}


def _warn(text: str) -> None:
    err.print(f"Warning: {text}", style="yellow", markup=False, soft_wrap=True)
