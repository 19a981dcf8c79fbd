"""The dashboard and the alerts in `etc/`: every metric that they name is told, and a real Prometheus takes them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from pilotfish.daemon.control.daemon_metrics import DaemonMetrics, metrics_routes
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.processes.ports import free_port
from tests.waiting import until

ETC = Path(__file__).resolve().parents[2] / "etc"
RULES = ETC / "prometheus" / "pilotfish.rules.yml"
CONFIG = ETC / "prometheus" / "prometheus.yml"
DASHBOARD = json.loads((ETC / "grafana" / "dashboard.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
NAME = re.compile(r"\bpilotfish_\w+")
VARIABLES = {"$model": ".*", "$__rate_interval": "1m", "$__range": "1h"}  # what Grafana puts in

on_prometheus = pytest.mark.prometheus


def governor() -> Governor:
    """A daemon with a model that did something."""
    governor = Governor()
    runner = governor.register(Registration(7, 4711, 'odd "name"', governor.started + 60))
    governor.report(runner.id, Report(measures=replace(Measures(), plain=5, accepted=5, answers=1)))
    return governor


def told() -> set[str]:
    """The name of every sample of a scrape."""
    families = text_string_to_metric_families(DaemonMetrics(governor()).render().decode())
    return {sample.name for family in families for sample in family.samples}


def filled_in(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


@pytest.mark.parametrize(
    "text", [RULES.read_text(), *(query for _, query in QUERIES)], ids=["rules", *(title for title, _ in QUERIES)]
)
def test_every_metric_that_is_asked_for_is_told(text):
    asked = set(NAME.findall(text))
    assert asked
    assert asked <= told()


def test_panels_have_numbers_of_their_own_places_of_their_own_and_a_word_on_what_they_show():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (column, row)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(column for column, _ in cells) < 24
    assert all(panel["description"] for panel in panels)


def test_variables_in_queries_are_known():
    known = {f"${variable['name']}" for variable in DASHBOARD["templating"]["list"]} | set(VARIABLES)
    assert {variable for _, query in QUERIES for variable in re.findall(r"\$\w+", query)} <= known


def promtool(*words: str, text: bytes | None = None) -> None:
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@on_prometheus
def test_promtool_finds_no_fault_in_config_and_rules():
    promtool("check", "config", str(CONFIG))


@on_prometheus
def test_each_alert_goes_off_for_what_it_is_about_and_for_nothing_else():
    promtool("test", "rules", str(Path(__file__).with_name("pilotfish.rules.test.yml")))


@on_prometheus
def test_the_metrics_follow_prometheus_conventions():
    promtool("check", "metrics", text=DaemonMetrics(governor()).render())


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A real one that scrapes `target` by our own config, every second; yields a client of its API."""
    shutil.copy(RULES, folder)
    config = folder / CONFIG.name
    config.write_text(CONFIG.read_text().replace("127.0.0.1:11435", target).replace("15s", "1s"))
    place = f"127.0.0.1:{free_port()}"
    arguments = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={place}")
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec("prometheus", *arguments, stdout=log, stderr=log)
        try:
            async with aiohttp.ClientSession(f"http://{place}") as session:
                yield session
        finally:
            process.kill()
            await process.wait()


async def asked(session: aiohttp.ClientSession, query: str) -> list[dict[str, object]]:
    """What a query gives; nothing while Prometheus starts. Fails where it does not understand the query."""
    try:
        async with session.get("/api/v1/query", params={"query": query}) as response:
            if response.status == 503:
                return []
            table = await response.json()
    except aiohttp.ClientConnectionError:
        return []
    assert table["status"] == "success", table
    found: list[dict[str, object]] = table["data"]["result"]
    return found


@on_prometheus
async def test_a_real_prometheus_scrapes_the_daemon_and_answers_every_query_of_the_dashboard(tmp_path):
    app = web.Application()
    app.add_routes(metrics_routes(DaemonMetrics(governor()).scrape))
    serving = web.AppRunner(app)
    await serving.setup()
    site = web.TCPSite(serving, "127.0.0.1", free_port())
    await site.start()
    try:
        async with prometheus(tmp_path, site.name.removeprefix("http://")) as session:
            for title, query in QUERIES:
                await until(lambda query=query: asked(session, filled_in(query)), f"{title}: nothing to show")
            assert await asked(session, 'pilotfish_requests_total{model="odd \\"name\\""}')
            assert await asked(session, 'up{job="pilotfish"} == 1')
    finally:
        await serving.cleanup()
