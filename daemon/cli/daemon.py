"""`pilotfish daemon`: govern the runners of an overlaid Ollama."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

import click

from pilotfish.daemon.cli.console import err
from pilotfish.daemon.processes.parent_death import when_orphaned
from pilotfish.hooks.errors import UsageError
from pilotfish.manifests.store import Store


@click.command("daemon")
@click.option("--config", "path", type=click.Path(path_type=Path), help="The config file, instead of the usual places.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--parent", type=int, metavar="PID", help="End with the process of this id, which started this one.")
def command(path: Path | None, root: Path | None, parent: int | None) -> None:
    """Watch the config, the plugins and the models, and tell running models what changed, until interrupted."""
    log = logging.getLogger("pilotfish")
    log.setLevel(min(log.level or logging.INFO, logging.INFO))
    asyncio.run(_govern(path, Store.find(root), parent))


async def _govern(path: Path | None, store: Store, parent: int | None) -> None:
    from pilotfish.daemon.control.address import socket_path
    from pilotfish.daemon.control.control_client import ask_status
    from pilotfish.daemon.control.daemon_metrics import DaemonMetrics, metrics_routes
    from pilotfish.daemon.dashboard.showing import page_served, showing

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with showing(store, path) as shown:
        if shown is None:
            from pilotfish.daemon.config.files import load_or_last_good

            place = socket_path(load_or_last_good(path))
            status = await ask_status(place)
            who = f"pid {status['daemon']['pid']}" if status else "a process that does not say who it is"
            raise UsageError(
                f"a daemon already runs at {place} ({who}); stop it first, or name another PILOTFISH_SOCKET"
            )
        err.print(f"pilotfish governs at {shown.daemon.socket}", markup=False, soft_wrap=True)
        metrics = metrics_routes(DaemonMetrics(shown.daemon.governor).scrape)
        async with page_served(shown, metrics) as url, when_orphaned(parent, stop.set):
            if url:
                err.print(f"The page is at {url} (pilotfish open)", markup=False, soft_wrap=True)
            await stop.wait()
