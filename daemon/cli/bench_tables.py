"""A benchmark's result for people: one table per mode and pass, and the ratios of every workload."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from pilotfish.daemon.lab.bench_report import ALL, Figures, Spread, groups, share_of_ceiling
from pilotfish.daemon.lab.bench_systems import SPECULATIVE, engines_among, on_engine

if TYPE_CHECKING:
    from pilotfish.daemon.lab.bench_document import BenchResult
    from pilotfish.daemon.lab.bench_loads import LoadFigures

_HEADINGS = (
    "\ntok/s",
    "decod-\ning",
    "\nspread",
    "\ntotal",
    "vs own\nplain",
    "first\nms",
    "\nratio",
    "drafts\nright",
    "ids\nequal",
)


def show(result: BenchResult, console: Console) -> None:
    """Print everything worth reading in a terminal."""
    found = result.figures
    names = groups(result.runs)
    for mode, again in dict.fromkeys((figure.mode, figure.again) for figure in found):
        here = [figure for figure in found if (figure.mode, figure.again) == (mode, again)]
        _titled(f"{mode}, {again} pass; ratios are to {result.base}", _systems(here), console)
        _titled("decoding, by workload and kind", _workloads(here, names), console)
        for group, engine in itertools.product(names, engines_among(result.systems)):
            if group in ("copy", ALL) and (share := share_of_ceiling(found, mode, again, group, engine)) is not None:
                name = on_engine(SPECULATIVE, engine)
                console.print(f"  {name}, {group}: {share:.0%} of what perfect guesses would gain", highlight=False)
    if result.loads:
        _titled(f"loading and memory; ratios are to {result.base}", _loads(result.load_figures), console)
    _verdict(result, console)


def _systems(found: Sequence[Figures]) -> Table:
    table = _table("system")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in (figure for figure in found if figure.group == ALL):
        table.add_row(
            figure.system,
            _text(figure.decode, lambda rate: f"{rate:.1f}"),
            _text(figure.decode_ratio, _times),
            "-" if figure.decode_ratio is None else f"{figure.decode_ratio.low:.2f}-{figure.decode_ratio.high:.2f}",
            _text(figure.total_ratio, _times),
            _text(figure.plain_ratio, _times),
            _text(figure.first_token, lambda seconds: f"{1000 * seconds:.0f}"),
            _text(figure.first_ratio, _times),
            "-" if figure.acceptance is None else f"{figure.acceptance:.0%}",
            _equal(figure),
        )
    return table


def _workloads(found: Sequence[Figures], names: Sequence[str]) -> Table:
    table = _table("system")
    for name in names:
        table.add_column(name, justify="right", overflow="fold", min_width=4)
    for system in dict.fromkeys(figure.system for figure in found):
        ratios = {figure.group: figure.decode_ratio for figure in found if figure.system == system}
        table.add_row(system, *(_text(ratios.get(name), lambda ratio: f"{ratio:.2f}") for name in names))
    return table


def _loads(found: Sequence[LoadFigures]) -> Table:
    table = _table("system")
    for heading in ("loaded\ns", "\nratio", "resident\nMB", "\nratio", "peak\nMB", "\nratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in found:
        table.add_row(
            figure.system,
            _text(figure.seconds, lambda seconds: f"{seconds:.2f}"),
            _text(figure.seconds_ratio, _times),
            _text(figure.resident, _megabytes),
            _text(figure.resident_ratio, _times),
            _text(figure.peak, _megabytes),
            _text(figure.peak_ratio, _times),
        )
    return table


def _verdict(result: BenchResult, console: Console) -> None:
    compared = sum(figure.compared for figure in result.figures if figure.group == ALL)
    if compared and result.exact:
        console.print("[green]pilotfish gave the plain ids of its engine in every answer[/]")
    elif compared:
        console.print("[red]pilotfish's ids differ from the plain ones of its engine[/]: run `pilotfish parity`")
    others = max(result.quiet["others"], default=0.0)
    state = "quiet" if result.quiet["quiet"] else "[yellow]not quiet[/]"
    console.print(f"the machine was {state}: other processes used up to {others:.0%} of a core")
    about = result.about
    console.print(f"{about['threads']} threads, {about['tokens']} tokens, {about['rounds']} rounds", style="dim")
    for engine in engines_among(result.systems):
        name, lane, certificate = (
            on_engine(SPECULATIVE, engine),
            about["lanes"][engine],
            about["certificates"][engine],
        )
        console.print(f"{name}: {lane}; {certificate}", style="dim", markup=False)


def _titled(title: str, table: Table, console: Console) -> None:
    console.print(f"[bold]{title}[/]", soft_wrap=True)  # a table's own title is folded to the table's width
    console.print(table)
    console.print()


def _table(first: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, min_width=len(on_engine(SPECULATIVE, "llama")))
    return table


def _text(spread: Spread | None, write: Callable[[float], str]) -> str:
    return "-" if spread is None else write(spread.median)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f}"


def _equal(figure: Figures) -> str:
    if not figure.compared:
        return "-"
    text = f"{figure.equal}/{figure.compared}"
    return text if figure.equal == figure.compared else f"[red]{text}[/]"
