"""`pilotfish certificates`: what was measured on this machine and is kept for the next load."""

from __future__ import annotations

import json

import click
from rich.table import Table

from pilotfish.daemon.certify.certificate import CertificateStore
from pilotfish.daemon.cli.certificate_table import show
from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config.paths import state_dir
from pilotfish.hooks.errors import UsageError


@click.group("certificates")
def command() -> None:
    """List, show and remove certificates."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of a table.")
def list_all(as_json: bool) -> None:
    """List the certificates, newest first."""
    entries = CertificateStore(state_dir()).entries()
    if as_json:
        rows = [
            {"key": e.key, "path": str(e.path), "trouble": e.trouble}
            | ({"model": e.certificate.model, "summary": e.certificate.summary()} if e.certificate else {})
            for e in entries
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("KEY", "MODEL", "MADE", "LANE"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        if found := entry.certificate:
            table.add_row(entry.key[:12], found.model, found.created[:16], found.summary())
        else:
            table.add_row(entry.key[:12], "", "", f"[red]ignored[/]: {entry.trouble}")
    out.print(table)
    if not entries:
        err.print("No certificates yet; `pilotfish certify MODEL` makes one.")


@command.command("show")
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="The certificate as one JSON object.")
def show_one(key: str, as_json: bool) -> None:
    """Show the certificate whose key begins with KEY."""
    entry = CertificateStore(state_dir()).get(key)
    if entry.certificate is None:
        raise UsageError(f"{entry.path}: {entry.trouble}; remove it with `pilotfish certificates remove {key}`")
    if as_json:
        click.echo(json.dumps(entry.certificate.to_json(), indent=2))
    else:
        show(entry.certificate)


@command.command("remove")
@click.argument("key")
def remove(key: str) -> None:
    """Remove the certificate whose key begins with KEY; the model is then measured again."""
    entry = CertificateStore(state_dir()).get(key)
    entry.path.unlink()
    out.print(f"removed {entry.path}", markup=False)
