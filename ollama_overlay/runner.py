"""The runner process: `python -m pilotfish.ollama_overlay.runner --model BLOB --port N ...`, as llama-server.

It listens at once and answers 503 while the model loads. It ends with 0 on SIGTERM or SIGINT, and with 1, after a
line that says why, when the launch is not for it, the port is taken or the model cannot be loaded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from aiohttp import web

from pilotfish.daemon import config, paths
from pilotfish.hooks.errors import PilotfishError
from pilotfish.ollama_overlay.about import ModelCard
from pilotfish.ollama_overlay.engine_thread import Generates
from pilotfish.ollama_overlay.launch import Launch, parse
from pilotfish.ollama_overlay.server import Server

log = logging.getLogger("pilotfish.runner")

STOP_SECONDS = 3.0  # what a forward pass in progress gets to end


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code."""
    _set_up_logging()
    try:
        launch = parse(sys.argv[1:] if argv is None else argv)
        code, stopped = asyncio.run(serve(launch))
    except PilotfishError as error:
        log.error("%s", error)
        return 1
    if not stopped:
        # The engine's thread is inside the library and would crash in it while the interpreter goes away.
        logging.shutdown()
        os._exit(code)
    return code


async def serve(launch: Launch) -> tuple[int, bool]:
    """Load and serve until a signal; the exit code, and whether the engine's thread has ended."""
    stop = _stop_on_signals()
    settings = config.load()
    server = Server(lambda: _load(launch, settings), n_predict=launch.n_predict)
    runner = web.AppRunner(server.app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, launch.host, launch.port)
        await site.start()
    except OSError as error:
        log.error("cannot listen on %s port %d: %s; choose another --port", launch.host, launch.port, error.strerror)
        await runner.cleanup()
        return 1, True
    log.info("listening on http://%s:%d", launch.host, runner.addresses[0][1])
    try:
        code = await _until_stopped(server, stop, launch)
    finally:
        server.cancel()
        await runner.cleanup()
    return code, server.join(STOP_SECONDS)


async def _until_stopped(server: Server, stop: asyncio.Event, launch: Launch) -> int:
    loaded = server.start()
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
    if loaded.done() and (error := loaded.exception()):
        stopping.cancel()
        trace = None if isinstance(error, PilotfishError) else error
        log.error("cannot load %s: %s", launch.model, error, exc_info=trace)
        return 1
    if loaded.done():
        log.info("model loaded: %s", launch.name)
    await stopping
    log.info("stopping")
    return 0


def _load(launch: Launch, settings: config.Config) -> tuple[Generates, ModelCard]:
    # Imported here, on the engine's thread: the engine's libraries take a while, and /health should answer meanwhile.
    from pilotfish.ollama_overlay.loading import load

    return load(launch, settings, paths.state_dir())


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
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
