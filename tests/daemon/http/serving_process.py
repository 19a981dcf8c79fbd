"""A server in a process of its own, on either event loop: `python -m tests.daemon.http.serving_process LOOP FILES`.

It may open FILES descriptors, sets no limit to connections, and prints its port. What it logs goes to stderr.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys

import uvloop
from aiohttp import web

from pilotfish.daemon.http.connection import Limits
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.http.serving import serving

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def main() -> None:
    app = web.Application()
    app.router.add_get("/", hello)
    listening = await listeners("127.0.0.1", 0)
    async with serving(app, listening, Limits(connections=1 << 20)):
        sys.stdout.write(f"{listening[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
    with asyncio.Runner(loop_factory=LOOPS[sys.argv[1]]) as runner:
        runner.run(main())
