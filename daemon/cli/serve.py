"""`pilotfish serve`: an Ollama-compatible server for the models of an Ollama store, without Ollama or before one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.daemon.cli.console import err
from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.config.types import TEMPLATES, Front
from pilotfish.daemon.front.settings import FrontSettings, Upstream, parse_host, parse_upstream, settings_from_env
from pilotfish.daemon.http.gate import is_loopback
from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.store import Store

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

    from pilotfish.daemon.control.governing import Governing

log = logging.getLogger("pilotfish.daemon")


@click.command("serve")
@click.option("--host", help="Where to listen, in any form OLLAMA_HOST has. Default: $PILOTFISH_HOST, [front] host.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--demo", is_flag=True, help="Serve the demo's model, smollm2:135m, from a store of its own.")
@click.option("--upstream", metavar="URL", help="The Ollama to stand before, as in http://127.0.0.1:11434.")
@click.option("--serve-gguf", is_flag=True, help="Before an upstream: compute GGUF models here, too.")
@click.option(
    "--templates",
    type=click.Choice(TEMPLATES),
    help="Before an upstream: who renders prompts: an Ollama without weights, the chat template that comes with the "
    "weights, or the upstream, which loads the model for it. Default: ollama.",
)
def command(
    host: str | None, root: Path | None, demo: bool, upstream: str | None, serve_gguf: bool, templates: str | None
) -> None:
    """Serve Ollama's API for text on port 11435, with speculative rounds.

    With --upstream, everything is handed on to that Ollama, byte for byte, but for the text of MLX models.
    """
    config = _config(needed=not (host or variable("PILOTFISH_HOST")))
    behind = _upstream(config, upstream, serve_gguf, templates)
    settings = replace(_settings(host, config), upstream=behind)
    store = _store(root, demo)
    before = f", before {behind.address.url}" if behind else ""
    err.print(f"pilotfish serves {store.root} on {settings.url}{before}", markup=False, soft_wrap=True)
    if behind and not is_loopback(settings.host):
        err.print("Whoever reaches this address reaches that Ollama, pulling and deleting included.", style="yellow")
    asyncio.run(_serve(store, settings))


async def _serve(store: Store, settings: FrontSettings) -> None:
    from pilotfish.daemon.dashboard.api import PREFIX
    from pilotfish.daemon.dashboard.showing import showing
    from pilotfish.daemon.front.app import serve

    mounted: list[RouteDef] = []
    async with contextlib.AsyncExitStack() as stack:
        try:
            shown = await stack.enter_async_context(showing(store))
            if shown is None:
                log.info("another daemon governs already; the models served here follow it")
            mounted += _metrics(shown.daemon if shown else None)
            if shown and shown.dashboard:
                mounted += shown.routes()
                shown.dashboard.state.url = f"{settings.url}{PREFIX}/"
                err.print(f"The page is at {shown.dashboard.state.url} (pilotfish open)", markup=False, soft_wrap=True)
        except ConfigError as error:
            err.print(f"Changes of the config wait for a model's next load: {error}", style="yellow", markup=False)
        await serve(store, settings, mounted)


def _metrics(daemon: Governing | None) -> list[RouteDef]:
    """`/metrics` of the daemon in this process, or of the other one."""
    from pilotfish.daemon.config.files import load_or_last_good
    from pilotfish.daemon.control.address import socket_path
    from pilotfish.daemon.control.daemon_metrics import DaemonMetrics, metrics_over, metrics_routes

    own = DaemonMetrics(daemon.governor).scrape if daemon else metrics_over(socket_path(load_or_last_good()))
    return metrics_routes(own)


def _config(*, needed: bool) -> Front:
    """What the config says. One that was never good does not matter to who says everything otherwise."""
    try:
        return load_or_last_good().front
    except ConfigError:
        if needed:
            raise
        return Front()


def _upstream(config: Front, url: str | None, serve_gguf: bool, templates: str | None) -> Upstream | None:
    address = config.upstream if url is None else url
    if not address:
        if serve_gguf or templates:
            raise click.UsageError("--serve-gguf and --templates are for a server before an Ollama: add --upstream URL")
        return None
    return Upstream(parse_upstream(address), serve_gguf or config.serve_gguf, templates or config.templates)


def _settings(host: str | None, config: Front) -> FrontSettings:
    settings = settings_from_env()
    host = host or (None if variable("PILOTFISH_HOST") else config.host)
    if not host:
        return settings
    name, port = parse_host(host)
    return replace(settings, host=name, port=port)


def _store(root: Path | None, demo: bool) -> Store:
    if demo:
        from pilotfish.daemon.lab.demonstration import demo_store

        return demo_store()
    return Store.find(root)
