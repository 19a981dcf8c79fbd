"""`pilotfish bench --agent`: a working session of an agent, on every way there is to serve it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.hooks.errors import EngineError

if TYPE_CHECKING:
    from pilotfish.daemon.lab.agent_bench import AgentBench, Course


def measure_agent(
    path: Path,
    weights: str,
    overlay: Path | None,
    rounds: int,
    json_file: str | None,
    *,
    only: Sequence[str] = (),
    modes: Sequence[str] = (),
) -> int:
    """Measure the GGUF at `path`, called `weights`, and show a table for each way of sampling or write JSON; 0 when
    nobody failed and ids were equal."""
    from pilotfish.daemon.lab.agent_bench import AgentBench, document, exact
    from pilotfish.daemon.lab.agent_session import MODES, load_session
    from pilotfish.daemon.lab.bench_document import machine
    from pilotfish.daemon.lab.bench_quiet import QuietWatch
    from pilotfish.daemon.lab.floor_servers import installed
    from pilotfish.daemon.lab.workloads import among

    sampling = among(MODES, modes, "--mode")
    ollamas = installed(overlay)
    watch = QuietWatch(lambda text: err.print(f"Warning: {text}", style="yellow", markup=False, soft_wrap=True))
    with tempfile.TemporaryDirectory(prefix="pf-agent-") as folder:
        of_stock = _ngram_modes(ollamas.stock)
        session, place = load_session(), Path(folder)
        bench = AgentBench(ollamas, path, session, place, sampling, rounds, ngram_modes=of_stock, only=only)
        with err.status("starting the servers") as shown, watch.stretch():
            courses = asyncio.run(bench.run(lambda what: shown.update(what)))
    if json_file:
        about = {"machine": machine(), "quiet": watch.to_json()}
        text = json.dumps(document(bench, courses, about), indent=1)
        click.echo(text) if json_file == "-" else Path(json_file).write_text(text + "\n")
    if json_file != "-":
        _show(bench, courses, f"{weights}, Ollama {ollamas.build}, medians of {rounds}")
    return 0 if exact(courses) and not any(course.failure for course in courses) else 1


def _ngram_modes(ollama: Path) -> tuple[str, ...]:
    """Those of the llama-server that this Ollama starts."""
    from pilotfish.daemon.lab.llama_server import ngram_modes

    server = ollama.resolve().parent.parent / "lib" / "ollama" / "llama-server"
    try:
        return ngram_modes(server)
    except EngineError as error:
        err.print(f"Warning: no n-gram modes of stock: {error}", style="yellow", markup=False, soft_wrap=True)
        return ()


def _show(bench: AgentBench, courses: Sequence[Course], title: str) -> None:
    from pilotfish.daemon.lab.agent_bench import FRONT, PLAIN, STOCK, exact

    out.print(f"[bold]{escape(title)}[/]; {len(bench.session.turns)} turns, each answer goes into the next prompt")
    for mode in bench.modes:
        of_mode = [course for course in courses if course.mode == mode.name]
        base = next(course for course in of_mode if course.contestant == STOCK).middle(lambda worked: worked.seconds)
        table = Table(box=None, header_style="bold", pad_edge=False, title=escape(mode.name), title_justify="left")
        table.add_column("")
        for heading in ("session", "of stock", "first token", "repeating", "writing", "tokens"):
            table.add_column(heading, justify="right", no_wrap=True)
        for course in of_mode:
            table.add_row(escape(course.contestant), *_figures(bench, course, base))
        out.print(table)
    out.print("session in seconds; first token in ms, the median of the turns; rates in tok/s", style="dim")
    for course in courses:
        if course.failure:
            out.print(f"{course.contestant}, {course.mode}: failed: {course.failure}", markup=False, soft_wrap=True)
    if {FRONT, PLAIN} <= {course.contestant for course in courses}:
        equal = "the same" if exact(courses) else "NOT the same"
        out.print(f"with drafts and without, pilotfish serve wrote {equal} in every turn", soft_wrap=True)


def _figures(bench: AgentBench, course: Course, base: float) -> list[str]:
    if not course.sessions:
        return ["-"] * 6
    seconds = course.middle(lambda worked: worked.seconds)
    first = course.middle(lambda worked: worked.first)
    repeating = course.middle(lambda worked: worked.rate(bench.session, repeats=True))
    writing = course.middle(lambda worked: worked.rate(bench.session, repeats=False))
    tokens = course.middle(lambda worked: worked.tokens)
    ratio = f"{seconds / base:.2f}x" if base else "-"
    return [f"{seconds:.1f}", ratio, f"{1000 * first:.0f}", f"{repeating:.1f}", f"{writing:.1f}", f"{tokens:.0f}"]
