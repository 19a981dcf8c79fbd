"""`pilotfish memory`: what drafters remember of earlier answers, and making them forget it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import click
from rich import filesize
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, ConfigError, InvalidModelName, ModelNotFound, UsageError, WorldError
from pilotfish.hooks.types import MemoryInfo
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

REMEMBERING = "suffix"  # the built-in that remembers; the drafters of the config are asked too


@runtime_checkable
class Remembers(Protocol):
    """A drafter that keeps a memory on disk. Both methods may raise OSError."""

    def memories(self) -> Sequence[MemoryInfo]:
        """What is on disk, of every model."""
        ...

    def forget(self, info: MemoryInfo | None = None) -> None:
        """Remove one model's memory, or all of them, also from running processes."""
        ...


_models = click.option(
    "--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default."
)


@click.group("memory")
def command() -> None:
    """Show and clear what drafters remember of earlier answers."""


@command.command("show")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of a table.")
@_models
def show(as_json: bool, root: Path | None) -> None:
    """List the models whose answers are remembered on disk."""
    store = Store.find(root)
    found = [(info, _names(info, store)) for drafter in _drafters() for info in _memories(drafter)]
    if as_json:
        click.echo(json.dumps([_as_json(info, names) for info, names in found], indent=2))
        return
    if not found:
        err.print('Nothing is remembered on disk. Memories that are kept with memory = "session" are not listed.')
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("MODEL", "REQUESTS", "TOKENS", "SIZE", "OLDEST", "NEWEST", "KEY"):
        table.add_column(title, overflow="fold")
    for info, names in found:
        counts = (f"{info.requests:,}", f"{info.tokens:,}", filesize.decimal(info.bytes))
        table.add_row(", ".join(names), *counts, _age(info.oldest), _age(info.newest), info.key[:12])
    out.print(table)


@command.command("clear")
@click.argument("model", required=False)
@_models
def clear(model: str | None, root: Path | None) -> None:
    """Forget what was remembered of MODEL (a name, or the beginning of its key), or of every model.

    Running models forget, too, when their next request begins; one that remembers only until it is unloaded does so
    when every memory is cleared.
    """
    store = Store.find(root)
    drafters = _drafters()
    found = [(drafter, info) for drafter in drafters for info in _memories(drafter)]
    if model is not None:
        found = [(drafter, info) for drafter, info in found if _means(model, info, store)]
        if not found:
            raise UsageError(
                f"no memory of {model} is on disk; see `pilotfish memory show`. What a running model remembers until "
                "it is unloaded is forgotten by `pilotfish memory clear` without a name"
            )
    for drafter in drafters if model is None else ():
        _forget(drafter, None)
    for drafter, info in found:
        if model is not None:
            _forget(drafter, info)
        names = ", ".join(_names(info, store))
        what = f"{info.requests:,} requests, {info.tokens:,} tokens, {filesize.decimal(info.bytes)}"
        out.print(f"removed the memory of {names}: {what}", markup=False, soft_wrap=True)
    if not found:
        out.print("nothing was on disk; running models forget what they hold when their next request begins")


def _drafters() -> list[Remembers]:
    settings = files.load_or_last_good()
    registry = Registry.load(settings)
    names = dict.fromkeys((REMEMBERING, *settings.drafters.order))
    drafters: list[object] = [registry.drafter(name) for name in names if name in registry.drafters]
    if drafters and drafters[0] is None:
        raise ConfigError("; ".join(problem.message for problem in registry.problems))
    return [drafter for drafter in drafters if isinstance(drafter, Remembers)]


def _memories(drafter: Remembers) -> Sequence[MemoryInfo]:
    try:
        return drafter.memories()
    except OSError as error:
        raise WorldError(f"{error.filename}: {error.strerror}; the memory cannot be read") from error


def _forget(drafter: Remembers, info: MemoryInfo | None) -> None:
    try:
        drafter.forget(info)
    except OSError as error:
        raise WorldError(f"{error.filename}: {error.strerror}; the memory is not cleared, remove it by hand") from error


def _names(info: MemoryInfo, store: Store) -> list[str]:
    """The models in the store with these weights; the name under which the memory was begun if there are none."""
    users = [
        manifest.name.short
        for manifest in store.models().models
        if {str(layer.digest) for layer in manifest.weights} & set(info.weights)
    ]
    return users or [info.model]


def _means(model: str, info: MemoryInfo, store: Store) -> bool:
    if model == info.model or (len(model) >= 4 and info.key.startswith(model)):
        return True
    try:
        if ModelName.parse(model).folded in [ModelName.parse(name).folded for name in _names(info, store)]:
            return True
        return bool({str(layer.digest) for layer in store.manifest(model).weights} & set(info.weights))
    except (InvalidModelName, ModelNotFound, BrokenModel):
        return False


def _as_json(info: MemoryInfo, names: Sequence[str]) -> dict[str, object]:
    return {
        "models": list(names),
        "key": info.key,
        "weights": list(info.weights),
        "requests": info.requests,
        "tokens": info.tokens,
        "bytes": info.bytes,
        "oldest": info.oldest,
        "newest": info.newest,
        "path": str(info.path),
    }


def _age(at: float | None) -> str:
    if at is None:
        return "-"
    seconds = max(0.0, time.time() - at)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"
