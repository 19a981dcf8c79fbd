"""A daemon with its page, at the control socket and at a port, and a runner that says what it is told to say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.dashboard.dashboard import Dashboard
from pilotfish.daemon.dashboard.showing import page_served, showing
from pilotfish.manifests.store import Store


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None:
    """Every test has a home of its own."""


@dataclass
class Shown:
    """A page, seen from a browser."""

    url: str
    http: aiohttp.ClientSession
    dashboard: Dashboard

    @property
    def governor(self) -> Governor:
        return self.dashboard.governor

    @property
    def token(self) -> dict[str, str]:
        return {"X-Pilotfish-Token": self.dashboard.token.value}

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.http.get(self.url + path, headers=headers) as response:
            return response.status, await response.json(content_type=None)


@asynccontextmanager
async def page(home: Path, text: str = "") -> AsyncIterator[Shown]:
    """A daemon whose config file says `text` and a port of its own."""
    config = home / "config" / "pilotfish" / "pilotfish.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text or '[page]\nhost = "127.0.0.1:0"\n')
    async with showing(Store(home / "models")) as shown:
        assert shown is not None
        assert shown.dashboard is not None
        async with page_served(shown) as url, aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            yield Shown(url, http, shown.dashboard)


@pytest.fixture
async def shown(home: Path) -> AsyncIterator[Shown]:
    async with page(home) as found:
        yield found
