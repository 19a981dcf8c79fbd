"""The life of a runner that loads, or has loaded, its model: serving, the daemon's plans, idle certifying, its end.

Apart from `main.py`, because what is imported here takes as long as a small model takes to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from pilotfish.daemon.certify.idle_certifier import IdleCertifier, certifying, idle_certifier
from pilotfish.daemon.config import paths
from pilotfish.daemon.config.types import Config, Engine
from pilotfish.daemon.control.plans import Plan, plugin_fingerprint
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.http.connection import ORDINARY, Limits
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.runner.daemon_link import linked
from pilotfish.daemon.runner.ending import Ending
from pilotfish.daemon.runner.floor import Floor
from pilotfish.daemon.runner.gain import NothingToGain, Outlook, awaits_certificate
from pilotfish.daemon.runner.last_error import say_why
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.model_load import ModelLoad
from pilotfish.daemon.runner.own_drafter import by_itself
from pilotfish.daemon.runner.projector import with_marker
from pilotfish.daemon.runner.server import Server
from pilotfish.daemon.runner.sidecar import Sidecar
from pilotfish.hooks.errors import PilotfishError

log = logging.getLogger("pilotfish.runner")

_SHUTDOWN = 0.5  # seconds that an answer under way may take, once its generation is cancelled


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A server for a model that loads, and all that it needs."""

    server: Server
    launch: Launch
    begun_with: Plan
    sidecar: Sidecar | None

    @classmethod
    def prepared(
        cls, loading: ModelLoad, launch: Launch, arguments: Sequence[str], settings: Config, floor: Floor
    ) -> Lifetime:
        """Raises whatever the config's plugin folders or the floor bring about."""
        begun_with = Plan(settings, plugin_fingerprint(settings.plugins.folders))
        stock = None if settings.engine.rpc else with_marker(floor.stock(), launch.projector)  # stock has no far ends
        sidecar = Sidecar(stock, by_itself(arguments), settings.engine.sidecar_idle_s) if stock else None
        server = Server(loading, host=launch.host, defaults=launch.defaults, sidecar=sidecar)
        return cls(server, launch, begun_with, sidecar)

    @contextlib.asynccontextmanager
    async def served(self, listening: Sequence[socket.socket], limits: Limits | None = None) -> AsyncIterator[int]:
        """The server answers inside, on the port that is given; the sidecar ends with it."""
        port: int = listening[0].getsockname()[1]
        try:
            async with serving(self.server.app, listening, limits or ORDINARY, shutdown_timeout=_SHUTDOWN):
                log.info("listening on http://%s:%d", self.launch.host, port)
                try:
                    yield port
                finally:
                    self.server.cancel()
        finally:
            if self.sidecar is not None:
                await self.sidecar.close()

    async def live(self, port: int, stop: asyncio.Event) -> Ending:
        """Until the signal to stop, until loading failed, the engine's thread is lost, or stock should serve.

        To be awaited while it is `served`. The engine's thread may still run then.
        """
        loaded = self.server.start()
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
        if loaded.done() and (error := loaded.exception()):
            stopping.cancel()
            return self._not_loaded(error)
        lost = asyncio.create_task(self.server.lost())
        if loaded.done():
            log.info("model loaded: %s", self.launch.name)
            if why := await self._while_loaded(stopping, lost, port):
                log.info("%s; the process ends, and the next request loads the model again", why)
                return Ending()
        if lost.done():
            say_why(f"{lost.result()}; the process ends")
            return Ending(lost=lost.result())
        await stopping
        log.info("stopping")
        return Ending()

    def _not_loaded(self, error: BaseException) -> Ending:
        if isinstance(error, NothingToGain):
            return Ending(str(error))
        if not isinstance(error, PilotfishError):
            log.error("loading failed", exc_info=error)
        engine, why = self.begun_with.config.engine, f"cannot load {self.launch.model}: {error}"
        if engine.rpc and not engine.rpc_fallback:  # what is spread over machines is too large for a stock server here
            say_why(why)
            return Ending(lost=why)
        return Ending(why)

    async def _while_loaded(self, stopping: asyncio.Task[bool], lost: asyncio.Task[str], port: int) -> str:
        """Follow the daemon and certify in idle moments until a task is done, or stock should serve; then why."""
        server, config = self.server, self.begun_with.config
        idle = idle_certifier(server.certification, lambda: server.busy, config.engine.certify_idle_s)
        on_engine = partial(follow_engine, self.sidecar, idle)
        outlook = _outlook(server) if self.sidecar else None
        going = asyncio.create_task(_handed_over(server, outlook))
        far = asyncio.create_task(server.far_ends_lost(config.engine.rpc_deadline_s))
        made = outlook.certified if outlook else None
        async with linked(server.generator, self.launch, port, self.begun_with, on_engine), certifying(idle, made):
            await asyncio.wait((stopping, lost, going), return_when=asyncio.FIRST_COMPLETED)
        far.cancel()
        if going.done():
            return going.result()
        going.cancel()
        return ""


async def _handed_over(server: Server, outlook: Outlook | None) -> str:
    """Wait until stock should have the model and nobody looks; for ever where there is no stock."""
    if outlook is None:
        await asyncio.Event().wait()
        return ""
    return await server.handover.moment(outlook.why_stock)


def _outlook(server: Server) -> Outlook | None:
    """What stock is compared with while the model is loaded; None for a generator of another kind than ours."""
    generator = server.generator
    if not isinstance(generator, Generator):
        return None
    awaited = awaits_certificate(generator.engine.lane.parity, server.certification)
    return Outlook(generator, paths.state_dir(), awaited)


def follow_engine(sidecar: Sidecar | None, certifier: IdleCertifier | None, engine: Engine) -> None:
    """The idle times of `[engine]` hold at once; what shapes a load waits for the next one."""
    if sidecar is not None:
        sidecar.idle_after(engine.sidecar_idle_s)
    if certifier is not None:
        certifier.idle_seconds = engine.certify_idle_s
