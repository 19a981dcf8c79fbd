"""The runner process: `python -m pilotfish.daemon.runner.main --model BLOB --port N ...`, as llama-server.

It listens at once and answers 503 while the model loads. It ends with 0 on SIGTERM or SIGINT, or when the front that
started it is gone, and with 1, after a line that says why, when the launch is not for it, the port is taken, the model
cannot be loaded, or anything else goes wrong before it is. With a floor (`floor.py`) it becomes the stock server
instead of ending with 1, also for a model with which speculation has nothing to gain (`gain.py`), and starts one beside
itself for requests that it does not serve. When it turns out later that there is nothing to gain, it ends with 0 while
nobody looks (`handover.py`). It also ends with 1, and is not replaced, when its engine's thread ends. Either way Ollama
loads the model again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import uvloop

from pilotfish.daemon.certify.idle_certifier import IdleCertifier, certifying, idle_certifier
from pilotfish.daemon.certify.left_to_stock import DAY, Left
from pilotfish.daemon.config import files, paths
from pilotfish.daemon.config.types import ENGINES, Config, Engine, Verifiers
from pilotfish.daemon.control.plans import Plan, plugin_fingerprint
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.http.connection import ORDINARY, Limits
from pilotfish.daemon.http.serving import listeners, serving
from pilotfish.daemon.processes.parent_death import when_let_go
from pilotfish.daemon.registry.plugin_trouble import describe
from pilotfish.daemon.runner.daemon_link import in_force, linked
from pilotfish.daemon.runner.engine_thread import Generates
from pilotfish.daemon.runner.floor import NO_FLOOR, Floor
from pilotfish.daemon.runner.gain import NothingToGain, Outlook, awaits_certificate
from pilotfish.daemon.runner.launch_arguments import Launch, parse
from pilotfish.daemon.runner.model_card import ModelCard
from pilotfish.daemon.runner.own_drafter import by_itself
from pilotfish.daemon.runner.projector import with_marker
from pilotfish.daemon.runner.server import Server
from pilotfish.daemon.runner.sidecar import Sidecar
from pilotfish.daemon.runner.stock_devices import stock_devices
from pilotfish.hooks.errors import BrokenModel, EngineError, PilotfishError

log = logging.getLogger("pilotfish.runner")

STOP_SECONDS = 3.0  # what a forward pass in progress gets to end
_SHUTDOWN = 0.5  # seconds that an answer under way may take, once its generation is cancelled


@dataclass(frozen=True, slots=True)
class Ending:
    """How serving ended: why it failed before the model was ready, if it did, and whether the engine's thread ended.

    `lost` says why no request could be answered any more, if that was the reason.
    """

    failure: str = ""
    stopped: bool = True
    lost: str = ""


def main(argv: Sequence[str] | None = None, floor: Floor = NO_FLOOR) -> int:
    """Run until told to stop; returns the exit code, unless `floor` takes this process over."""
    _set_up_logging()
    arguments = sys.argv[1:] if argv is None else argv
    ready = threading.Event()
    try:
        # Per token, uvloop takes 150 us less of the cores that the engine computes on than asyncio's own loop.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            ending = loop.run(serve(parse(arguments), arguments, ready, floor=floor))
    except PilotfishError as error:
        ending = Ending(str(error))
    except KeyboardInterrupt:  # Ctrl-C before anybody listened for it
        raise
    except BaseException as error:  # the floor is plain Ollama, whatever happened
        if ready.is_set():
            raise
        log.error("starting failed", exc_info=error)
        ending = Ending(f"starting failed: {describe(error)}")
    if ending.failure:
        floor.land(ending.failure, arguments)
        log.error("%s", ending.failure)
    code = 1 if ending.failure or ending.lost else 0
    if not ending.stopped:
        # The engine's thread is inside the library and would crash in it while the interpreter goes away.
        logging.shutdown()
        os._exit(code)
    return code


async def serve(
    launch: Launch,
    arguments: Sequence[str],
    ready: threading.Event,
    limits: Limits = ORDINARY,
    floor: Floor = NO_FLOOR,
) -> Ending:
    """Load and serve until a signal. `arguments` are what `launch` was parsed from. Raises ConfigError.

    `ready` is set once the model is loaded: from then on there is no way back to the floor.
    """
    stop = _stop_on_signals()
    launch = launch.with_users()
    settings = in_force(_configured(floor), launch)
    begun_with = Plan(settings, plugin_fingerprint(settings.plugins.folders))
    stock = with_marker(floor.stock(), launch.projector)
    sidecar = Sidecar(stock, by_itself(arguments), settings.engine.sidecar_idle_s) if stock else None
    server = Server(
        lambda: _load(launch, settings, ready, floor), host=launch.host, defaults=launch.defaults, sidecar=sidecar
    )
    try:
        listening = await listeners(launch.host, launch.port)
    except OSError as error:
        return Ending(f"cannot listen on {launch.host} port {launch.port}: {error.strerror}; choose another --port")
    port = listening[0].getsockname()[1]
    try:
        async with serving(server.app, listening, limits, shutdown_timeout=_SHUTDOWN):
            log.info("listening on http://%s:%d", launch.host, port)
            try:
                ending = await _until_stopped(server, stop, launch, port, begun_with, sidecar, floor)
            finally:
                server.cancel()
    finally:
        if sidecar is not None:
            await sidecar.close()
    return replace(ending, stopped=server.join(STOP_SECONDS))


async def _until_stopped(
    server: Server,
    stop: asyncio.Event,
    launch: Launch,
    port: int,
    begun_with: Plan,
    sidecar: Sidecar | None,
    floor: Floor,
) -> Ending:
    """Serve until the signal to stop, until loading failed, the engine's thread is lost, or stock should serve."""
    loaded = server.start()
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
    if loaded.done() and (error := loaded.exception()):
        stopping.cancel()
        if isinstance(error, NothingToGain):
            return Ending(str(error))
        if not isinstance(error, PilotfishError):
            log.error("loading failed", exc_info=error)
        return Ending(f"cannot load {launch.model}: {error}")
    lost = asyncio.create_task(server.lost())
    if loaded.done():
        log.info("model loaded: %s", launch.name)
        idle = idle_certifier(server.certification, lambda: server.busy, begun_with.config.engine.certify_idle_s)
        on_engine = partial(follow_engine, sidecar, idle)
        outlook = _outlook(server) if sidecar else None
        going = asyncio.create_task(_handed_over(server, outlook))
        made = outlook.certified if outlook else None
        async with linked(server.generator, launch, port, begun_with, on_engine), certifying(idle, made):
            await asyncio.wait((stopping, lost, going), return_when=asyncio.FIRST_COMPLETED)
        if going.done():
            log.info("%s; the process ends, and the next request loads the model again", going.result())
            return Ending()
        going.cancel()
    if lost.done():
        log.error("%s; the process ends", lost.result())
        return Ending(lost=lost.result())
    await stopping
    log.info("stopping")
    return Ending()


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


def _load(launch: Launch, settings: Config, ready: threading.Event, floor: Floor) -> tuple[Generates[Any], ModelCard]:
    # Imported here, on the engine's thread: the engine's libraries take a while, and /health should answer meanwhile.
    from pilotfish.daemon.runner.loading import load

    stock = floor.stock()
    with floor.loading(launch.model):
        try:
            loaded = load(
                launch,
                settings,
                paths.state_dir(),
                must_gain=stock is not None,
                stock_devices=partial(stock_devices, stock),
            )
        except NothingToGain as error:
            if error.left is not None:
                floor.leave(launch, settings, error.left)
            raise
        except BrokenModel as error:  # to this engine; another build may know the architecture
            now = round(time.time(), 3)
            floor.leave(launch, settings, Left(str(error), now, until=now + DAY))
            raise
        except StopIteration as error:  # the one exception that the future of a load cannot carry
            raise EngineError(describe(error)) from error
    ready.set()
    return loaded


def _configured(floor: Floor) -> Config:
    """The config, with the engines' logs sent to stderr where somebody reads it there."""
    settings = files.load_or_last_good()
    if not floor.engine_log_is_read:
        return settings
    tables = settings.verifiers.tables
    logging_there = {name: {"log": "stderr", **tables.get(name, {})} for name in ENGINES}
    return replace(settings, verifiers=Verifiers({**tables, **logging_there}))


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    when_let_go(stop.set)
    return stop


def _set_up_logging() -> None:
    """To stderr. libllama's own lines go out as they are, because Ollama reads its memory accounting from them."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    engine_log = logging.getLogger("pilotfish.llama")
    engine_log.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    engine_log.addHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
