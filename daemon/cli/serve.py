"""`pilotfish serve`: an Ollama-compatible server for the models of an Ollama store, without Ollama."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from pilotfish.daemon.cli.console import err
from pilotfish.daemon.front.settings import parse_host, settings_from_env
from pilotfish.manifests.store import Store


@click.command("serve")
@click.option("--host", help="Where to listen, in any form OLLAMA_HOST has. Default: $PILOTFISH_HOST or :11435.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--demo", is_flag=True, help="Serve the demo's model, smollm2:135m, from a store of its own.")
def command(host: str | None, root: Path | None, demo: bool) -> None:
    """Serve Ollama's API for text on port 11435, with speculative rounds."""
    from pilotfish.daemon.front.app import serve

    settings = settings_from_env()
    if host:
        name, port = parse_host(host)
        settings = replace(settings, host=name, port=port)
    store = _store(root, demo)
    err.print(f"pilotfish serves {store.root} on {settings.url}", markup=False, soft_wrap=True)
    asyncio.run(serve(store, settings))


def _store(root: Path | None, demo: bool) -> Store:
    if demo:
        from pilotfish.daemon.lab.demo import demo_store

        return demo_store()
    return Store(root) if root else Store.find()
