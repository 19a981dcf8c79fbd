"""`pilotfish models`: what is in the store, whether pilotfish can speculate with it, and on request all about one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich import filesize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pilotfish.daemon.certify.expected_engine import engine_of
from pilotfish.daemon.certify.verdicts import ModelListing, ModelReport, describe_model, describe_models
from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.store import Store

_MANY = 8  # weight files that are listed one by one
_WIDE = 1000  # columns where no terminal sets a limit


@click.command("models")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(name: str | None, as_json: bool, root: Path | None) -> None:
    """List the models, and whether pilotfish can speculate with each; with NAME, all about that one."""
    store = Store.find(root)
    with err.status("Reading manifests; weight files that are new are hashed"):
        listing = _listing(store, name)
    if as_json:
        click.echo(json.dumps(listing.to_json(), indent=2))
    elif name is not None:
        _print(_details(listing.models[0]))
    else:
        if listing.models:
            _print(_table(listing.models))
        _print_remarks(listing, store)


def _listing(store: Store, name: str | None) -> ModelListing:
    """Every model, or the one of that name. Raises ModelNotFound."""
    config = _config()
    if name is None:
        return describe_models(store, state_dir(), config=config or Config())
    named = engine_of(config, state_dir()) if config else None
    report = describe_model(store, store.manifest(name), state_dir(), engine_of=named, config=config or Config())
    return ModelListing((report,), ())


def _config() -> Config | None:
    try:
        return files.load_or_last_good()
    except ConfigError:  # what is wrong with it, `pilotfish status` says
        return None


def _print(table: Table) -> None:
    """On a terminal a line that is too long is cut; elsewhere every line is whole."""
    console = out if out.is_terminal else Console(highlight=False, width=_WIDE)
    console.print(table)


def _print_remarks(listing: ModelListing, store: Store) -> None:
    for skipped in listing.skipped:
        err.print(f"skipped {skipped.path}: {skipped.reason}", style="yellow", markup=False, soft_wrap=True)
    if not listing.models:
        err.print(f"No models in {store.root}. Pull one with `ollama pull`, or try `pilotfish demo`.", markup=False)
    elif any(model.verdict != "yes" for model in listing.models):
        err.print("Why, and what else is known: pilotfish models NAME", style="dim", markup=False)


def _table(models: Sequence[ModelReport]) -> Table:
    """One line a model."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("NAME")  # the only column that gives way when there is too little room
    for title in ("SIZE", "QUANT", "SPECULATES"):
        table.add_column(title, no_wrap=True)
    for model in models:
        name = Text(model.name, no_wrap=True, overflow="ellipsis")
        table.add_row(name, filesize.decimal(model.size), Text(model.quantization), _verdict(model))
    return table


def _details(model: ModelReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, value in _facts(model):
        table.add_row(title, value)
    return table


def _facts(model: ModelReport) -> Iterator[tuple[str, Text]]:
    """What is known of a model, line by line: what it means for the reader first, then what it is."""
    yield "name", Text(model.name)
    yield "speculates", _verdict(model)
    why = model.certificate or "\n".join(model.limits) or model.reason
    if why:
        yield "", Text(why)
    if left := model.left_to_stock:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(left.since))
        yield "on stock", Text(f"under Ollama, since {since}: {left.reason}")
    if model.engine:
        yield "engine", Text(model.engine)
    facts = {
        "size": filesize.decimal(model.size),
        "format": model.format,
        "family": model.family,
        "parameters": model.parameter_size,
        "quantization": model.quantization,
        "assistant": model.assistant,
        "context": f"{model.context_length} tokens" if model.context_length else "",
        "manifest": model.manifest_digest,
        "weights": _weights(model.weights),
        "hashes": "checked" if model.verified else "",
        "tokenizer": model.tokenizer,
    }
    yield from ((title, Text(value)) for title, value in facts.items() if value)


def _weights(digests: Sequence[str]) -> str:
    """The digests, or how many there are: an MLX model has one for each tensor."""
    if len(digests) > _MANY:
        return f"{len(digests)} files; their digests: --json"
    return "\n".join(digest.removeprefix("sha256:") for digest in digests)


def _verdict(model: ModelReport) -> Text:
    return Text(model.verdict, style="red" if model.verdict.startswith("no") else "green")
