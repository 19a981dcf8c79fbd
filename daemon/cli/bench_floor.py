"""`pilotfish bench --floor`: where stock Ollama is better than the overlaid one, if anywhere."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import err, out

if TYPE_CHECKING:
    from pilotfish.daemon.lab.floor_bench import Line


def measure_floor(model: str, root: Path | None, overlay: Path | None, rounds: int, json_file: str | None) -> int:
    """Measure, and show one table or write JSON; 0 when the overlaid Ollama answered whatever stock did."""
    from pilotfish.daemon.lab.bench_document import machine
    from pilotfish.daemon.lab.bench_quiet import QuietWatch
    from pilotfish.daemon.lab.floor_bench import FloorBench, document
    from pilotfish.daemon.lab.floor_servers import installed
    from pilotfish.daemon.lab.subjects import model_path

    watch = QuietWatch(lambda text: err.print(f"Warning: {text}", style="yellow", markup=False, soft_wrap=True))
    with tempfile.TemporaryDirectory(prefix="pf-floor-") as folder:
        bench = FloorBench(installed(overlay), model_path(model, root), rounds, Path(folder))
        began = time.monotonic()
        with err.status("starting both servers") as shown, watch.stretch():
            lines = asyncio.run(bench.run(lambda what: shown.update(f"measuring: {what}")))
        if json_file:
            about = {"machine": machine(), "quiet": watch.to_json(), "seconds": round(time.monotonic() - began)}
            text = json.dumps(document(bench, lines, about), indent=1)
            click.echo(text) if json_file == "-" else Path(json_file).write_text(text + "\n")
        if why := bench.why_stock():
            err.print(f"Stock served the model in both: {why}", style="yellow", markup=False, soft_wrap=True)
        if json_file != "-":
            _show(lines, f"{model}, Ollama {bench.ollamas.build}, medians of {rounds}")
    return 0 if all(line.answered for line in lines) else 1


def _show(lines: Sequence[Line], title: str) -> None:
    from pilotfish.daemon.lab.floor_bench import OVERLAID, STOCK

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("situation")
    for heading in ("unit", STOCK, OVERLAID, "ratio", "target", ""):
        table.add_column(heading, justify="left" if heading in ("unit", "") else "right", no_wrap=True)
    for line in lines:
        figures = (_figure(line.median(server)) for server in (STOCK, OVERLAID))
        ratio = "-" if line.ratio is None else f"{line.ratio:.2f}x"
        table.add_row(escape(line.name), line.unit, *figures, ratio, f"{line.allowed:.2f}x", _remark(line))
    out.print(f"[bold]{escape(title)}[/]; less is better, and a ratio above its target is short", soft_wrap=True)
    out.print(table)
    for line in lines:
        for server, why in line.failures.items():
            out.print(f"{line.name}: {server} failed: {why}", markup=False, soft_wrap=True)
    short = [line.name for line in lines if line.short]
    verdict = f"stock is better at: {', '.join(short)}" if short else "nowhere is stock better"
    out.print(verdict, markup=False, soft_wrap=True)


def _remark(line: Line) -> str:
    if not line.answered:
        return "[red]failed[/]"
    if line.short:
        return "[yellow]short[/]"
    return "" if line.equal_counts else "other counts"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
