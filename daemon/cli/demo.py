"""`pilotfish demo`: a real model answers real prompts, plain and speculative, and the ids are compared."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Sequence

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.lab.demonstration import MODEL, Comparison, compare, demo_store
from pilotfish.daemon.lab.workloads import MODES, Workload, load_workloads


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a table.")
@click.option("--tokens", default=128, show_default=True, type=click.IntRange(1, 3000), help="Tokens per answer.")
def command(as_json: bool, tokens: int) -> None:
    """Answer prompts with a real model, plain and speculative, and prove that the ids are equal."""
    results = asyncio.run(_run(load_workloads(), tokens))
    equal = bool(results) and all(result.equal for result in results)
    if as_json:
        click.echo(json.dumps({"equal": equal, "prompts": [result.to_json() for result in results]}))
    else:
        _show(results, equal)
    sys.exit(0 if equal else 1)


async def _run(workloads: Sequence[Workload], tokens: int) -> list[Comparison]:
    from pilotfish.daemon.front.app import embedded

    results: list[Comparison] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("making the model store", total=len(workloads) * len(MODES))
        store = await asyncio.to_thread(demo_store)
        async with embedded(store) as url, Client(url) as client:
            progress.update(task, description=f"loading {MODEL}")
            await client.ask({"model": MODEL})

            def starting(what: str) -> None:
                progress.update(task, description=what)

            async for result in compare(client, workloads, n_predict=tokens, starting=starting):
                results.append(result)
                progress.advance(task)
    return results


def _show(results: Sequence[Comparison], equal: bool) -> None:
    table = Table(
        title=f"{MODEL}: the same prompts, plain and speculative", title_justify="left", box=None, pad_edge=False
    )
    for title in ("prompt", "sampling"):
        table.add_column(title, no_wrap=True)
    for title in ("tokens", "plain\ntok/s", "speculative\ntok/s", "ratio", "drafts\naccepted", "ids"):
        table.add_column(title, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_cells(result))
    out.print(table)
    median = statistics.median(result.ratio for result in results)
    verdict = "[green]every id is equal[/]" if equal else "[red]ids differ[/]: speculation changed an answer"
    out.print(f"{verdict}; median ratio {median:.2f}x, best {max(r.ratio for r in results):.2f}x")


def _cells(result: Comparison) -> list[str]:
    acceptance = "-" if result.acceptance is None else f"{result.acceptance:.0%}"
    return [
        result.name,
        result.mode,
        str(result.tokens),
        f"{result.plain_tps:.1f}",
        f"{result.speculative_tps:.1f}",
        f"{result.ratio:.2f}x",
        acceptance,
        "[green]equal[/]" if result.equal else "[red]DIFFER[/]",
    ]
