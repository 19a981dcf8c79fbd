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
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import uvloop

from pilotfish.daemon.certify.left_to_stock import DAY, Left
from pilotfish.daemon.config import files, paths
from pilotfish.daemon.config.types import ENGINES, Config, Verifiers
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.processes.parent_death import when_let_go
from pilotfish.daemon.registry.plugin_trouble import describe
from pilotfish.daemon.runner.ending import Ending
from pilotfish.daemon.runner.engine_thread import Generates
from pilotfish.daemon.runner.floor import NO_FLOOR, Floor
from pilotfish.daemon.runner.last_error import show_to_ollama
from pilotfish.daemon.runner.launch_arguments import Launch, in_force, parse
from pilotfish.daemon.runner.model_load import ModelLoad
from pilotfish.daemon.runner.stock_devices import stock_devices
from pilotfish.hooks.errors import BrokenModel, EngineError, PilotfishError

if TYPE_CHECKING:
    from pilotfish.daemon.http.connection import Limits
    from pilotfish.daemon.runner.model_card import ModelCard

log = logging.getLogger("pilotfish.runner")

STOP_SECONDS = 3.0  # what a forward pass in progress gets to end
_SWITCH = 1e-4  # seconds
_LEAD = 1.0  # seconds that the engine's thread gets the interpreter for itself, at most: first loads hash the file


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
    limits: Limits | None = None,
    floor: Floor = NO_FLOOR,
) -> Ending:
    """Load and serve until a signal. `arguments` are what `launch` was parsed from. Raises ConfigError.

    `ready` is set once the model is loaded: from then on there is no way back to the floor.
    """
    stop = _stop_on_signals()
    launch = launch.with_users()
    settings = in_force(_configured(floor), launch)
    try:
        listening = await listeners(launch.host, launch.port)
    except OSError as error:
        return Ending(f"cannot listen on {launch.host} port {launch.port}: {error.strerror}; choose another --port")
    opening = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begun() -> None:
        loop.call_soon_threadsafe(opening.set)

    loading = ModelLoad(lambda: _load(launch, settings, ready, floor, begun))
    _hurry_until(loaded := loading.engine.start())
    try:
        await _lead(loaded, opening)
        ending = await _lived(loading, listening, launch, arguments, settings, stop, floor, limits)
    finally:
        loading.engine.cancel()
    ending = replace(ending, stopped=loading.engine.join(STOP_SECONDS))
    # The signal is spent: a stock server would not hear of it.
    return replace(ending, failure="") if stop.is_set() else ending


def _hurry_until(loaded: asyncio.Future[None]) -> None:
    """Until then no garbage is looked for, and threads take turns often: an engine's library logs hundreds of lines as
    it loads, and each would wait 5 ms for the interpreter while this thread imports."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    gc.disable()

    def at_leisure(_: asyncio.Future[None]) -> None:
        sys.setswitchinterval(before)
        gc.freeze()  # what is there now stays: later collections need not look at it
        gc.enable()

    loaded.add_done_callback(at_leisure)


async def _lead(loaded: asyncio.Future[None], opening: asyncio.Event) -> None:
    """Wait until the engine's thread is inside its library, since two threads that import are no faster than one."""
    begun = asyncio.create_task(opening.wait())
    await asyncio.wait((loaded, begun), timeout=_LEAD, return_when=asyncio.FIRST_COMPLETED)
    begun.cancel()


async def _lived(
    loading: ModelLoad,
    listening: Sequence[socket.socket],
    launch: Launch,
    arguments: Sequence[str],
    settings: Config,
    stop: asyncio.Event,
    floor: Floor,
    limits: Limits | None,
) -> Ending:
    """Serve until the end. Until it is served nobody knows of a model that is loaded: what fails then is a failure."""
    async with contextlib.AsyncExitStack() as served:
        try:
            from pilotfish.daemon.runner.lifetime import Lifetime

            lifetime = Lifetime.prepared(loading, launch, arguments, settings, floor)
            port = await served.enter_async_context(lifetime.served(listening, limits))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            log.error("starting failed", exc_info=error)
            return Ending(f"starting failed: {describe(error)}")
        return await lifetime.live(port, stop)


def _load(
    launch: Launch, settings: Config, ready: threading.Event, floor: Floor, opening: Callable[[], None] = lambda: None
) -> tuple[Generates[Any], ModelCard]:
    from pilotfish.daemon.registry.spread import with_far_ends
    from pilotfish.daemon.runner.gain import NothingToGain
    from pilotfish.daemon.runner.loading import load

    options = with_far_ends(launch.engine_options(paths.state_dir()), settings.engine)
    stock = None if settings.engine.rpc else floor.stock()  # no stock server has far ends
    if settings.engine.rpc and not options.far_ends and (why := floor.crashed(launch.model)):
        raise EngineError(f"{launch.model} is not loaded here without its far ends: {why}")
    # Over far ends a crash is none of this machine's.
    with contextlib.nullcontext() if options.far_ends else floor.loading(launch.model):
        try:
            loaded = load(
                launch,
                settings,
                paths.state_dir(),
                options,
                must_gain=stock is not None,
                stock_devices=partial(stock_devices, stock),
                opening=opening,
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
    show_to_ollama()
    engine_log = logging.getLogger("pilotfish.llama")
    engine_log.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    engine_log.addHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
