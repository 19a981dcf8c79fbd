"""The processes that are sent broken requests: `python -m tests.fuzz.servers NAME FOLDER` prints where it listens.

They are the real ones. Only the model is none: the runner's engine is the tests' fake one, over a vocabulary of bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from aiohttp import web

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control.address import claimed
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.socket_server import create_app
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.dashboard.api import page_routes
from pilotfish.daemon.dashboard.dashboard import Dashboard
from pilotfish.daemon.drafthost.draft_server import DraftServer
from pilotfish.daemon.drafthost.listening import Endpoint, listening, until_told
from pilotfish.daemon.drafthost.served import Served
from pilotfish.daemon.front import FrontSettings, running
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.lab.fakes.fake_engine import EOS, FakeEngine, FakeTokenizer, fake_pin
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.server import Server
from pilotfish.manifests.store import Store
from pilotfish.plugins.drafters.suffix import SuffixDrafter
from tests.daemon.chat.family_templates import HERMES
from tests.daemon.front.tiny_models import write_gguf
from tests.daemon.runner.scripted import card
from tests.fakes.far import local_host

FIRST_BYTE = 2  # id of the byte 0; 0 and 1 are BOS and EOS
N_VOCAB = FIRST_BYTE + 256


class ByteTokenizer(FakeTokenizer):
    """Every byte is an id."""

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        return [FIRST_BYTE + byte for byte in text.encode("utf-8", "replace")]


class ByteEngine(FakeEngine):
    """The fake engine over bytes."""

    def __init__(self) -> None:
        pieces = {FIRST_BYTE + byte: bytes([byte]) for byte in range(256)}
        super().__init__(n_vocab=N_VOCAB, n_ctx=1024, pieces=pieces)
        self.tokenizer = ByteTokenizer(pieces, frozenset({EOS}))


@contextlib.asynccontextmanager
async def runner(folder: Path, port: int = 0) -> AsyncIterator[str]:
    """The runner's server, its engine thread and its generator, with the default drafters."""
    engine = ByteEngine()
    generator = Generator(engine, fake_pin(N_VOCAB), Registry.load(Config()), Config())
    server = Server(lambda: (generator, card(engine, HERMES)))
    async with _listening(server.app, port) as url:
        await server.start()
        yield url
        server.cancel()
    server.join(60)


@contextlib.asynccontextmanager
async def front(folder: Path) -> AsyncIterator[str]:
    """The front over a store of two models; its runners are processes of this module."""
    store = Store(folder / "models")
    store.add_gguf("tiny", write_gguf(folder / "tiny.gguf", template=HERMES))
    store.add_gguf("bare", write_gguf(folder / "bare.gguf", template=None, salt=1), params={"stop": ["##"]})
    command = (sys.executable, "-m", "tests.fuzz.servers", "runner", str(folder))
    async with running(store, FrontSettings(port=0, runner=command)) as settings:
        yield settings.url


@contextlib.asynccontextmanager
async def draft(folder: Path) -> AsyncIterator[str]:
    """A draft host that serves `suffix`."""
    served = Served(SuffixDrafter(), Registry(Config()), local_host(folder))
    async with listening(DraftServer(served, sweep=0.05), Endpoint(port=0)) as endpoint:
        yield endpoint.url


@contextlib.asynccontextmanager
async def control(folder: Path) -> AsyncIterator[str]:
    """The daemon's control socket, with the page's API. Its switch edits a config file of its own."""
    path, config = folder / "control.sock", folder / "pilotfish.toml"
    config.write_text("[speculation]\nenabled = true\n")
    os.environ["PILOTFISH_CONFIG"] = str(config)
    governor = Governor()
    dashboard = Dashboard(governor, Store(folder / "no models"), folder / "state")
    with claimed(path) as listener:
        assert listener is not None  # a folder of its own
        app = create_app(governor)
        app.add_routes(page_routes(dashboard, by_socket=True))
        async with dashboard.working(), serving(app, [listener]):
            yield f"unix:{path}"


@contextlib.asynccontextmanager
async def _listening(app: web.Application, port: int) -> AsyncIterator[str]:
    found = await listeners("127.0.0.1", port)
    async with serving(app, found, shutdown_timeout=1.0):
        yield f"http://127.0.0.1:{found[0].getsockname()[1]}"


SERVERS: Mapping[str, Callable[..., AbstractAsyncContextManager[str]]] = {
    "front": front,
    "runner": runner,
    "draft": draft,
    "control": control,
}


async def serve(name: str, folder: Path, **options: Any) -> None:
    """Serve until the process is told to end, or whoever started it is gone."""
    async with until_told() as stop, SERVERS[name](folder, **options) as url:
        print(url, flush=True)  # noqa: T201  # what started this reads it
        await stop.wait()


def main(words: Sequence[str]) -> None:
    """`words` may go on with llama-server's arguments, of which only the port counts."""
    logging.basicConfig(level=logging.WARNING)
    name, folder, *launch = words
    options = {"port": int(launch[launch.index("--port") + 1])} if "--port" in launch else {}
    asyncio.run(serve(name, Path(folder), **options))


if __name__ == "__main__":
    main(sys.argv[1:])
