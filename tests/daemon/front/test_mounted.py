"""Routes of the daemon beside the front's before an upstream: `/metrics` and the page are ours, by our own rules."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from pilotfish.daemon.control.daemon_metrics import DaemonMetrics, metrics_routes
from pilotfish.daemon.dashboard.showing import showing
from pilotfish.daemon.front import FrontSettings, running
from pilotfish.daemon.front.settings import Upstream
from tests.daemon.front.fake_upstream import END, fake_upstream

OURS = ("/metrics", "/pilotfish/", "/pilotfish/static/main.js", "/pilotfish/api/state", "/pilotfish/api/live")


@pytest.fixture
async def upstream():
    async with fake_upstream() as upstream:
        yield upstream


@pytest.fixture
async def front(home, store, upstream):
    """A front before `upstream` with everything that `pilotfish serve` mounts, as a session; its token is `token`."""
    async with showing(store) as shown:
        assert shown is not None
        assert shown.dashboard is not None
        mounted = [*metrics_routes(DaemonMetrics(shown.daemon.governor).scrape), *shown.routes()]
        settings = FrontSettings(host="127.0.0.1", port=0, upstream=Upstream(upstream.address))
        async with running(store, settings, mounted=mounted) as bound, aiohttp.ClientSession(bound.url) as session:
            session.headers["X-Pilotfish-Token"] = shown.dashboard.token.value
            upstream.visits.clear()
            yield session


async def test_they_are_answered_here(front, upstream):
    for path in OURS:
        async with front.get(f"{path}?x=1") as response:
            assert response.status == 200, path
            assert response.headers["Connection"] == "close"
    assert upstream.visits == []


async def test_other_pages_and_other_names_get_nothing_whatever_the_upstream_allows(front, upstream):
    upstream.script = lambda visit: visit.answer(b"all may", lines=b"Access-Control-Allow-Origin: *\r\n")
    for path in OURS:
        for foreign in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
            async with front.get(path, headers=foreign) as response:
                assert response.status == 403, (path, foreign)
                assert "Access-Control-Allow-Origin" not in response.headers
                assert await response.read() == b""
    assert upstream.visits == []


async def test_no_other_page_switches_anything(front, upstream, home):
    body = {"enabled": False, "model": None}
    for origin in ("https://evil.example", "http://localhost:3000"):
        for method in ("POST", "OPTIONS"):
            headers = {"Origin": origin}
            async with front.request(method, "/pilotfish/api/switch", json=body, headers=headers) as response:
                assert "Access-Control-Allow-Origin" not in response.headers
                assert response.status == 403 or (method == "OPTIONS" and response.status == 204)
    assert upstream.visits == []
    assert not (home / "config" / "pilotfish" / "pilotfish.toml").exists()
    async with front.post("/pilotfish/api/switch", json=body) as response:
        assert (response.status, (await response.json())["changed"]) == (200, True)


async def test_what_only_looks_like_one_is_the_upstreams(front, upstream):
    for path in ("/metrics/", "//metrics", "/%6detrics", "/pilotfish/none", "/pilotfish/api%2Fstate"):
        reader, writer = await asyncio.open_connection(front._base_url.host, front._base_url.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await reader.read()).endswith(END + b'{"upstream":true}')
        writer.close()
        assert len(upstream.asked(path)) == 1
