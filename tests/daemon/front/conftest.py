"""A store of tiny models, and a front over it whose runners are fakes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pilotfish.daemon.front import FrontSettings, running
from pilotfish.daemon.http.connection import ORDINARY, Limits
from pilotfish.manifests.store import Store
from tests.daemon.chat.family_templates import THINKING
from tests.daemon.front.tiny_models import write_gguf
from tests.waiting import until

FAKE = Path(__file__).with_name("fake_runner.py")


def filled(folder: Path) -> Store:
    """`tiny`, `other` (chat templates), `bare` (no template), `embed` (an embedding model), `caller` (tools and
    thinking)."""
    store = Store(folder / "models")
    store.add_gguf("tiny", write_gguf(folder / "tiny.gguf"))
    store.add_gguf("other:v2", write_gguf(folder / "other.gguf", salt=1), system="Be brief.", params={"stop": ["##"]})
    store.add_gguf("bare", write_gguf(folder / "bare.gguf", template=None))
    store.add_gguf("embed", write_gguf(folder / "embed.gguf", template=None, pooling=True))
    store.add_gguf("caller", write_gguf(folder / "caller.gguf", template=THINKING, salt=2))
    return store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path)


@dataclass
class Front:
    """A running front, seen from a client."""

    settings: FrontSettings
    http: aiohttp.ClientSession
    journal: Path

    @property
    def url(self) -> str:
        return self.settings.url

    def post(self, path: str, body: Any = None, **arguments: Any) -> Any:
        return self.http.post(self.url + path, **({"json": body} if body is not None else {}), **arguments)

    async def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of a POST."""
        async with self.post(path, body) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str) -> Any:
        async with self.http.get(self.url + path) as response:
            assert response.status == 200
            return await response.json()

    async def lines(self, path: str, body: Any) -> list[dict[str, Any]]:
        """The objects of an NDJSON stream."""
        async with self.post(path, body) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "application/x-ndjson"
            return [json.loads(line) async for line in response.content]

    def journal_of(self, event: str) -> list[dict[str, Any]]:
        """What the fake runners recorded of one kind."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [entry for line in lines if (entry := json.loads(line))["event"] == event]

    async def until_unloaded(self) -> None:
        """Wait until no model is loaded."""

        async def unloaded() -> bool:
            return not (await self.get("/api/ps"))["models"]

        await until(unloaded, "a model is still loaded")


def starter(store: Store, journal: Path) -> Callable[..., Any]:
    """Start a front with changed settings and extra arguments for its fake runners."""

    @asynccontextmanager
    async def start(*arguments: str, limits: Limits = ORDINARY, **changes: Any) -> AsyncIterator[Front]:
        settings = FrontSettings(
            port=0, runner=(sys.executable, str(FAKE)), runner_args=("--record", str(journal), *arguments)
        )
        async with running(store, replace(settings, **changes), limits) as bound, aiohttp.ClientSession() as http:
            yield Front(bound, http, journal)

    return start


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Callable[..., Any]:
    return starter(store, tmp_path / "journal.jsonl")


@pytest.fixture
async def front(start: Callable[..., Any]) -> AsyncIterator[Front]:
    async with start() as front:
        yield front


@pytest_asyncio.fixture(loop_scope="module")
async def own_front(start: Callable[..., Any]) -> AsyncIterator[Front]:
    """A new one, in a module whose other tests share one."""
    async with start() as front:
        yield front


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept_front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    async with starter(filled(folder), folder / "journal.jsonl")() as front:
        yield front


@pytest.fixture
def shared_front(kept_front: Front) -> Front:
    """One for a whole module, whose tests have `loop_scope="module"`: nothing is journalled, models may be loaded."""
    kept_front.journal.unlink(missing_ok=True)
    return kept_front
