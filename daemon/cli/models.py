"""`pilotfish models`: what is in the store, its pins, and whether pilotfish can speculate with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich import filesize
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.models import ModelReport, describe_models
from pilotfish.daemon.paths import state_dir
from pilotfish.manifests.store import Store


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(as_json: bool, root: Path | None) -> None:
    """List the models, their pins, and for each whether pilotfish can speculate, and if not, why."""
    store = Store.find(root)
    with err.status("Reading manifests and checking digests (the first time, every weight file is hashed)"):
        listing = describe_models(store, state_dir())
    if as_json:
        click.echo(json.dumps(listing.to_json(), indent=2))
        return
    out.print(_table(listing.models))
    for skipped in listing.skipped:
        err.print(f"skipped {skipped.path}: {skipped.reason}", style="yellow", markup=False, soft_wrap=True)
    if not listing.models:
        err.print(f"No models in {store.root}. Pull one with `ollama pull`, or try `pilotfish demo`.", markup=False)


def _table(models: Sequence[ModelReport]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("NAME", "SIZE", "FORMAT", "QUANT", "WEIGHTS", "TOKENIZER", "SPECULATES"):
        table.add_column(title, overflow="fold")
    for model in models:
        weights = ", ".join(digest.removeprefix("sha256:")[:12] for digest in model.weights[:2])
        table.add_row(
            model.name,
            filesize.decimal(model.size),
            model.format,
            model.quantization,
            weights,
            model.tokenizer[:12],
            _verdict(model),
        )
    return table


def _verdict(model: ModelReport) -> str:
    if not model.can_speculate:
        return f"[red]no[/]: {escape(model.reason)}"
    if model.certificate:
        return f"[green]certified[/]: {escape(model.certificate)}"
    limits = f" ({escape('; '.join(model.limits))})" if model.limits else ""
    return f"[green]yes[/]{limits}"
