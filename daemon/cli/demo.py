"""`pilotfish demo`: a real model answers real prompts, plain and speculative, and the ids are compared."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.live import Live

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.cli.demo_table import results_table, verdict
from pilotfish.daemon.cli.demo_view import DemoView
from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.lab.demonstration import MODEL, Comparison, compare, demo_store
from pilotfish.daemon.lab.workloads import MODES, Workload, load_workloads

# Seconds that the check of forward widths may take as the model loads. A runner goes on to certify its model in an idle
# minute; a demo has none, and on a busy machine the usual two would show plain decoding twice.
CHECK_SECONDS = 10


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a table.")
@click.option("--tokens", default=128, show_default=True, type=click.IntRange(1, 3000), help="Tokens per answer.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Also draw what was seen into this file.")
def command(as_json: bool, tokens: int, svg: Path | None) -> None:
    """Answer prompts with a real model, plain and speculative, and prove that the ids are equal."""
    workloads = load_workloads()
    view = DemoView(len(workloads) * len(MODES))
    results = asyncio.run(_run(workloads, tokens, view))
    equal = bool(results) and all(result.equal for result in results)
    report = [results_table(results), *verdict(results, equal)]
    if as_json:
        click.echo(json.dumps({"equal": equal, "prompts": [result.to_json() for result in results]}))
    else:
        for part in report:
            out.print(part)
    if svg:
        _draw(svg, [view.best, "", *report])
    sys.exit(0 if equal else 1)


async def _run(workloads: Sequence[Workload], tokens: int, view: DemoView) -> list[Comparison]:
    from pilotfish.daemon.front.app import embedded

    os.environ.setdefault("PILOTFISH_CHECK_SECONDS", str(CHECK_SECONDS))
    with err.status(f"making {MODEL} ready"):
        store = await asyncio.to_thread(demo_store)
    with Live(view, console=err, transient=True, refresh_per_second=10):
        async with embedded(store) as url, Client(url) as client:
            await client.ask({"model": MODEL})
            return await compare(client, workloads, view, n_predict=tokens)


def _draw(path: Path, parts: Sequence[RenderableType]) -> None:
    """What a terminal would show, as a picture."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=120, highlight=False, file=nowhere, force_terminal=True)
        for part in parts:
            console.print(part)
        console.save_svg(str(path), title="pilotfish demo")
