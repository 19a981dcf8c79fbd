"""A daemon with its page: at the control socket for commands, and at a port for browsers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from pilotfish.daemon.control.governing import Governing, governing
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.dashboard.api import PREFIX, page_routes
from pilotfish.daemon.dashboard.dashboard import Dashboard
from pilotfish.daemon.http.gate import gate
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.http.serving import serving
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.dashboard")

PORT = 11437


@dataclass(frozen=True, slots=True)
class Showing:
    """A daemon at work; `dashboard` is None where the config wants no page."""

    daemon: Governing
    dashboard: Dashboard | None

    def routes(self) -> list[web.RouteDef]:
        """The page's, for a server that others reach."""
        return page_routes(self.dashboard) if self.dashboard else []


@contextlib.asynccontextmanager
async def showing(store: Store, config_path: Path | None = None) -> AsyncIterator[Showing | None]:
    """Govern and keep the account until the block ends; yields None when another daemon has the socket already.

    Raises what `governing` raises.
    """
    made: list[Dashboard] = []

    def routes(governor: Governor) -> Sequence[web.RouteDef]:
        if not governor.config.page.enabled:
            return ()
        made.append(Dashboard(governor, store))
        return page_routes(made[0], by_socket=True)

    async with governing(config_path, store, mounted=routes) as daemon:
        if daemon is None:
            yield None
        elif not made:
            yield Showing(daemon, None)
        else:
            async with made[0].working():
                yield Showing(daemon, made[0])


@contextlib.asynccontextmanager
async def page_served(shown: Showing, mounted: Sequence[web.RouteDef] = ()) -> AsyncIterator[str]:
    """The page at `[page] host` until the block ends; yields its address.

    `mounted` are routes that are served there, too. Where it cannot be had, a log line says so, and the address is
    empty.
    """
    dashboard = shown.dashboard
    if dashboard is None:
        yield ""
        return
    host, port = _host_and_port(dashboard.governor.config.page.host)
    try:
        listening = await listeners(host, port)
    except OSError as error:
        log.warning("no page: cannot listen on %s:%d: %s; name another [page] host", host, port, error.strerror)
        yield ""
        return
    app = web.Application(middlewares=[gate(host)])
    app.add_routes([web.get("/", _to_page), *page_routes(dashboard), *mounted])
    shown_host = f"[{host}]" if ":" in host else host
    dashboard.state.url = f"http://{shown_host}:{listening[0].getsockname()[1]}{PREFIX}/"
    async with serving(app, listening, shutdown_timeout=0.2):
        yield dashboard.state.url


async def _to_page(request: web.Request) -> web.Response:
    raise web.HTTPFound(f"{PREFIX}/")


def _host_and_port(text: str) -> tuple[str, int]:
    """`host`, `host:port` or `[::1]:port`; what is no port stands for the usual one."""
    split = urlsplit(f"//{text}")
    try:
        port = split.port
    except ValueError:
        port = None
    return split.hostname or "127.0.0.1", PORT if port is None else port
