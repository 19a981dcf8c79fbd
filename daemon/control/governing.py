"""A daemon from start to end: it claims the socket, keeps an eye on files, and answers runners.

A look, after every change: is the config file another? are the plugin files? the manifests? What is slow (plugins,
hashing) happens on threads; the event loop only learns the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control.address import claimed, socket_path
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.pinning import Manifests, pin_again
from pilotfish.daemon.control.plans import plugin_fingerprint, plugin_problems
from pilotfish.daemon.control.socket_server import create_app
from pilotfish.daemon.control.stamps import Stamp, stamp_of
from pilotfish.daemon.control.watcher import Place, Watch
from pilotfish.daemon.http.connection import ORDINARY, Limits
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ConfigError
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.daemon")


@dataclass(frozen=True, slots=True)
class Governing:
    """A daemon at work."""

    governor: Governor
    socket: Path


@contextlib.asynccontextmanager
async def governing(
    config_path: Path | None = None,
    store: Store | None = None,
    limits: Limits = ORDINARY,
    mounted: Callable[[Governor], Sequence[web.RouteDef]] = lambda governor: (),
) -> AsyncIterator[Governing | None]:
    """Govern until the block ends. Yields None, and does nothing, when another daemon has the socket already.

    `config_path` None means the file that `config.find` finds, now and later. `mounted` gives routes that are served at
    the socket beside its own. Raises ConfigError when the socket
    cannot be had; a config file that is no good is reported by the status and raises nothing.
    """
    config_watcher = ConfigWatcher(config_path, store)
    config_watcher.look_at_config()
    path = socket_path(config_watcher.governor.config)
    with claimed(path) as listening:
        if listening is None:
            yield None
            return
        app = create_app(config_watcher.governor)
        app.add_routes(mounted(config_watcher.governor))
        answering = serving(app, [listening], limits, shutdown_timeout=0.2)
        async with answering, config_watcher.watching():
            log.info("governing at %s", path)
            yield Governing(config_watcher.governor, path)


class ConfigWatcher:
    """Keeps a governor's knowledge of config, plugins and pins equal to what is on disk."""

    def __init__(self, config_path: Path | None, store: Store | None) -> None:
        self.governor = Governor()
        self._named = config_path
        self._seen: tuple[Path | None, Stamp | None] | None = None
        self._store = store
        self._manifests: Manifests | None = None
        self._registry: Registry | None = None
        self._registry_for: tuple[Config, str] | None = None
        self._pinning: set[asyncio.Task[None]] = set()
        self._one_by_one = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look after every change until the block ends."""
        if self._store:
            self._manifests = await asyncio.to_thread(Manifests, self._store)
        watch = Watch(lambda: self._look(watch))
        self._look_at_plugins()
        await watch.places(self._places())
        watch.start()
        try:
            yield
        finally:
            await watch.close()
            for task in self._pinning:
                task.cancel()
            await asyncio.gather(*self._pinning, return_exceptions=True)

    async def _look(self, watch: Watch) -> None:
        again = True
        while again:  # a folder that is watched only now may have been filled before
            self.look_at_config()
            self._look_at_plugins()
            await self._look_at_manifests()
            again = await watch.places(self._places())

    def look_at_config(self) -> None:
        """Take the config file's present state over if it is good; otherwise say why not."""
        path = self._config_path()
        seen = (path, stamp_of(path) if path else None)
        if seen == self._seen:
            return
        first, self._seen = self._seen is None, seen
        try:
            config = _read(path)
        except ConfigError as error:
            self._refuse(path, str(error), first)
            return
        if path is not None:
            config_file.remember_good(config)
        self.governor.use_config(config)

    def _config_path(self) -> Path | None:
        """The file to look at: the one in force even if it vanished, unless one of a higher rank appeared."""
        if self._named:
            return self._named
        found, in_force = config_file.find(), self._seen[0] if self._seen else None
        if in_force is None or in_force == found:
            return found
        ranks = config_file.candidates()
        higher = found is not None and in_force in ranks and ranks.index(found) < ranks.index(in_force)
        return found if higher else in_force

    def _refuse(self, path: Path | None, why: str, first: bool) -> None:
        good = config_file.last_good(path) if first and path else None
        if good is not None:
            self.governor.use_config(good)
        self.governor.config_failed(why)

    def _look_at_plugins(self) -> None:
        folders = self.governor.config.plugins.folders
        self.governor.use_plugins(plugin_fingerprint(folders), plugin_problems(folders))

    async def _look_at_manifests(self) -> None:
        if self._manifests is None:
            return
        for name in await asyncio.to_thread(self._manifests.changed):
            task = asyncio.create_task(self._pin(self._manifests.store, name), name=f"pin {name}")
            self._pinning.add(task)
            task.add_done_callback(self._pinning.discard)

    async def _pin(self, store: Store, name: ModelName) -> None:
        async with self._one_by_one:  # hashing two files at once is slower than one after the other
            notify = await asyncio.to_thread(self._notifier, self.governor.config, self.governor.plugins)
            await asyncio.to_thread(pin_again, store, name, state_dir(), notify)

    def _notifier(self, config: Config, plugins: str) -> Callable[[TargetPin], None]:
        if self._registry is None or self._registry_for != (config, plugins):
            self._registry, self._registry_for = Registry.load(config), (config, plugins)
        return self._registry.notify_pinned

    def _places(self) -> list[Place]:
        configs = [self._named] if self._named else list(config_file.candidates())
        # A link's file may lie elsewhere, and is what an editor replaces.
        folders = {path.parent for named in configs for path in (named, Path(os.path.realpath(named)))}
        places = [Place(folder) for folder in (*folders, *self.governor.config.plugins.folders)]
        if self._store:
            places.append(Place(self._store.manifests, recursive=True))
        return places


def _read(path: Path | None) -> Config:
    if path is None:
        return Config()
    try:
        path.stat()
    except FileNotFoundError:
        remedy = "create it again, or start the daemon again to have the defaults"
        raise ConfigError(f"{path}: is not there; {remedy}") from None
    except OSError:
        pass  # reading it says what is wrong
    return config_file.load_written(path)
