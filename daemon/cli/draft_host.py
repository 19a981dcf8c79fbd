"""`pilotfish draft-host`: serve one of this machine's drafters to pilotfish on other machines."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.daemon.cli.console import err
from pilotfish.hooks.errors import ConfigError, UsageError
from pilotfish.hooks.types import Placement

if TYPE_CHECKING:
    from pilotfish.daemon.drafthost.listening import Endpoint
    from pilotfish.daemon.drafthost.served import Served

_FILE = click.Path(path_type=Path)


@click.command("draft-host")
@click.argument("name")
@click.option("--host", default="", help="Where to listen, as HOST:PORT. Default: 127.0.0.1:11436.")
@click.option("--socket", type=_FILE, help="Listen on a Unix socket instead.")
@click.option("--token-file", type=_FILE, help="The shared secret; needed for any address but this machine's own.")
@click.option("--cert", type=_FILE, help="A TLS certificate (PEM), with --key if it does not hold its key.")
@click.option("--key", type=_FILE, help="The certificate's key (PEM).")
@click.option("--models", "root", type=_FILE, help="The model store; Ollama's own by default.")
@click.option("--config", "path", type=_FILE, help="The config file, instead of the usual places.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one line of JSON.")
def command(
    name: str,
    host: str,
    socket: Path | None,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    root: Path | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """Serve the drafter NAME, with its table [drafters.NAME] of the config, until interrupted.

    On the machine that drafts for: [drafters.remote] url = "http://this-machine:11436".
    """
    from pilotfish.daemon.drafthost.listening import parse_endpoint

    endpoint = parse_endpoint(host, socket, token_file, cert, key)
    asyncio.run(_serve(_served(name, root, path), endpoint, as_json))


async def _serve(served: Served, endpoint: Endpoint, as_json: bool) -> None:
    from pilotfish.daemon.drafthost.draft_server import DraftServer
    from pilotfish.daemon.drafthost.listening import listening, until_told

    async with until_told() as told, listening(DraftServer(served, endpoint.token), endpoint) as bound:
        said = {"drafter": served.name, "url": bound.url, "sessions": served.limit, "pid": os.getpid()}
        if as_json:
            click.echo(json.dumps({**said, "token": bool(bound.token), "tls": bound.tls is not None}))
        else:
            secret = "with a shared secret" if bound.token else "without a secret"
            click.echo(f"Serving {served.name} on {bound.url} {secret}, {served.limit} session(s) at a time.")
        await told.wait()
    if not as_json:
        err.print(f"{served.name} is no longer served.", style="dim")


def _served(name: str, root: Path | None, path: Path | None) -> Served:
    from pilotfish.daemon.config.files import load, load_or_last_good
    from pilotfish.daemon.drafters.local_host import LocalHost, admit_alone
    from pilotfish.daemon.drafthost.served import Served
    from pilotfish.daemon.registry.registry import Registry
    from pilotfish.manifests.store import Store

    registry = Registry.load(load(path) if path else load_or_last_good())
    drafter = registry.drafter(name)
    if drafter is None:
        known = ", ".join(registry.drafters)
        why = str(registry.problems[-1]) if registry.problems else f"there are: {known}"
        raise ConfigError(f"drafters.{name}: cannot be served: {why}")
    if drafter.placement is Placement.REMOTE:
        raise UsageError(f"{name} drafts on another machine already; serve one of this machine's drafters")
    host = LocalHost(Store(root) if root else None, owner=f"pilotfish draft-host {name}")
    return Served(drafter, registry, host, admit_alone)
