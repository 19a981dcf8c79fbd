"""`pilotfish on` and `pilotfish off`: edit the config file, keep everything else in it as it is."""

from __future__ import annotations

import asyncio
import contextlib

import click
from rich.markup import escape

from pilotfish.daemon.cli.console import err, out
from pilotfish.hooks.errors import ConfigError


@click.command("on")
@click.argument("model", required=False)
def on(model: str | None) -> None:
    """Use drafts: for every model, or for MODEL. Edits the config file, nothing else."""
    _toggle(model, enabled=True)


@click.command("off")
@click.argument("model", required=False)
def off(model: str | None) -> None:
    """Decode plainly: for every model, or for MODEL. Edits the config file, nothing else."""
    _toggle(model, enabled=False)


def _toggle(model: str | None, *, enabled: bool) -> None:
    from pilotfish.daemon.config.editing import set_enabled

    edit = set_enabled(enabled, model)
    word = "on" if enabled else "off"
    if not edit.changed:
        out.print(f"already {word}: {edit.key} in {edit.path}", markup=False, soft_wrap=True)
    else:
        made = " (the file is new)" if edit.created else ""
        out.print(f"{word}: {edit.key} = {str(enabled).lower()} in {edit.path}{made}", markup=False, soft_wrap=True)
    if edit.exceptions:
        names = ", ".join(edit.exceptions)
        err.print(f"[yellow]not for {escape(names)}[/]: a setting of their own says otherwise", soft_wrap=True)
    if edit.changed:
        err.print(_when(), style="dim", markup=False, soft_wrap=True)


def _when() -> str:
    from pilotfish.daemon.config import files
    from pilotfish.daemon.control.address import socket_path
    from pilotfish.daemon.control.control_client import ask_status

    with contextlib.suppress(ConfigError):  # a socket's path that cannot be is no daemon's
        if asyncio.run(ask_status(socket_path(files.load()))):
            return "The daemon applies it to the next request of every loaded model."
    return "No daemon runs: it takes effect for each model when that is loaded next."
