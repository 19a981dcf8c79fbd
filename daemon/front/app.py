"""Listening: the front as a running server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from aiohttp import web

from pilotfish.daemon.front.routes import create_app
from pilotfish.daemon.front.settings import FrontSettings, settings_from_env
from pilotfish.daemon.http.connection import ORDINARY, Limits
from pilotfish.daemon.http.serving import listeners, serving
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.front")

__all__ = ["create_app", "embedded", "running", "serve"]


@contextlib.asynccontextmanager
async def running(
    store: Store, settings: FrontSettings, limits: Limits = ORDINARY, mounted: Sequence[web.RouteDef] = ()
) -> AsyncIterator[FrontSettings]:
    """The front, listening; yields the settings with the port it got (port 0 lets the system choose one).

    `mounted` are routes that are served beside its own.
    A client that goes away cancels its request. Raises ConfigError when the address cannot be had. On leaving, all
    runners are ended.
    """
    try:
        listening = await listeners(settings.host, settings.port)
    except OSError as error:
        raise ConfigError(_why_not(settings, error)) from error
    bound = replace(settings, port=listening[0].getsockname()[1])
    async with serving(create_app(store, settings, mounted), listening, limits):
        log.info("listening on %s, models in %s", bound.url, store.root)
        yield bound


@contextlib.asynccontextmanager
async def embedded(store: Store, settings: FrontSettings | None = None) -> AsyncIterator[str]:
    """A front for this process only, on a free port of loopback; yields its URL."""
    settings = settings or settings_from_env()
    async with running(store, replace(settings, host="127.0.0.1", port=0)) as bound:
        yield bound.url


async def serve(store: Store, settings: FrontSettings, mounted: Sequence[web.RouteDef] = ()) -> None:
    """Serve until SIGINT or SIGTERM (or cancellation), then end all runners. `mounted` is as for `running`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with running(store, settings, mounted=mounted):
            await stop.wait()
            log.info("stopping")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _why_not(settings: FrontSettings, error: OSError) -> str:
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        other = f"PILOTFISH_HOST={settings.host}:{settings.port + 1}"
        return f"PILOTFISH_HOST: {where} is in use; stop what listens there or choose another, such as {other}"
    return f"PILOTFISH_HOST: cannot listen on {where}: {error.strerror}; choose another address"
