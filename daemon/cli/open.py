"""`pilotfish open`: the page in a browser, with leave to change things and to read answers."""

from __future__ import annotations

import asyncio
import os
import webbrowser

import click

from pilotfish.daemon.cli.console import err, out
from pilotfish.hooks.errors import UsageError


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the address instead of opening it.")
def command(only_print: bool) -> None:
    """Open the page that shows what goes on, with leave to switch models on and off and to read answers."""
    url = asyncio.run(_address(None if only_print else os.getuid()))
    if only_print or not webbrowser.open(url):
        out.print(url, markup=False, soft_wrap=True)
        err.print("The address is good once, for one minute.", style="dim", markup=False)


async def _address(user: int | None) -> str:
    """For `user` alone: others see the command line of a browser. Raises UsageError when no daemon shows a page."""
    import aiohttp

    from pilotfish.daemon.config import files
    from pilotfish.daemon.control.address import socket_path
    from pilotfish.daemon.control.control_client import SOON, connected
    from pilotfish.daemon.dashboard.api import PREFIX

    place = socket_path(files.load_or_last_good())
    try:
        async with (
            connected(place) as session,
            session.post(f"{PREFIX}/open", json={"user": user}, timeout=SOON) as response,
        ):
            found = await response.json(content_type=None) if response.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UsageError(f"the daemon at {place} does not answer ({error or type(error).__name__})") from error
    if not (url := found.get("url")):
        raise UsageError(f"the daemon at {place} shows no page; set [page] enabled and host, and start it again")
    return str(url)
