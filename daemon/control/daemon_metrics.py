"""`/metrics` of the daemon: what all its runners did, by model, and how the daemon stands.

Nothing is asked of a runner for a scrape: runners report once a second while there is news (`control_client.py`), and
what they said last is what is told. `metrics_routes` puts it into any application: the control socket's, the front's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pilotfish import __version__
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.control.control_client import SOON, connected
from pilotfish.daemon.control.decision_log import on_stock
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.metric_families import CONTENT_TYPE, families
from pilotfish.hooks.errors import ConfigError, WorldError

ROUTE = "/metrics"
STATES = ("active", "parked", "plain", "off")  # of a runner, as `Standing` has them

LOOKS_WITHIN = 1.0  # seconds, after which a scrape tells what the look before it found

Scrape = Callable[[], Awaitable[bytes]]


class DaemonMetrics(Collector):
    """A governor's knowledge, for prometheus-client. On the event loop only."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._on_stock = 0
        self._looking: asyncio.Future[None] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def scrape(self) -> bytes:
        """`render`, after a look at what was left to stock. One look at a time: a disk may never answer."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="looks at what is on stock")
        await asyncio.wait((self._looking,), timeout=LOOKS_WITHIN)
        return self.render()

    async def _look(self) -> None:
        try:
            self._on_stock = len(on_stock(await asyncio.to_thread(decision_log.read, state_dir())))
        except ConfigError:  # no home folder: nothing was left to stock
            self._on_stock = 0

    def render(self) -> bytes:
        """The text of a scrape."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        governor = self._governor
        yield from families(("model",), [((model,), sums) for model, sums in governor.ledger.sums().items()])
        yield from self._runners()
        yield GaugeMetricFamily(
            "pilotfish_config_ok",
            "Whether the config file is what is in force (1) or has a fault (0)",
            value=not governor.config_error,
        )
        yield CounterMetricFamily("pilotfish_config_loads", "Configs taken over", value=governor.reloads)
        yield GaugeMetricFamily(
            "pilotfish_plugin_problems", "Plugin files that are not loaded", value=len(governor.plugin_problems)
        )
        yield GaugeMetricFamily(
            "pilotfish_models_on_stock", "Models whose last launch went to the stock server", value=self._on_stock
        )
        yield GaugeMetricFamily("pilotfish_start_time_seconds", "When the daemon started", value=governor.started)
        about = GaugeMetricFamily("pilotfish_build_info", "The daemon's version", labels=["version"])
        about.add_metric([__version__], 1)
        yield about

    def _runners(self) -> Iterator[Metric]:
        states: Counter[tuple[str, str]] = Counter()
        answering: Counter[str] = Counter()
        for runner in self._governor.runners:
            label = self._governor.ledger.label(runner.registration.model)
            states[label, runner.report.standing.state] += 1
            answering[label] += runner.report.answering
        loaded = GaugeMetricFamily(
            "pilotfish_runners", "Loaded models by state of speculation", labels=["model", "state"]
        )
        requests = GaugeMetricFamily("pilotfish_requests_running", "Requests being answered", labels=["model"])
        for label in self._governor.ledger.labels:  # also of models that are not loaded now: a gap would be no zero
            for state in STATES:
                loaded.add_metric([label, state], states[label, state])
            requests.add_metric([label], answering[label])
        yield loaded
        yield requests


def metrics_routes(scrape: Scrape) -> list[web.RouteDef]:
    """The routes of `/metrics`; `scrape` gives their text and may raise WorldError."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=await scrape(), headers={"Content-Type": CONTENT_TYPE})

    return [web.get(ROUTE, handle)]


def metrics_over(socket: Path) -> Scrape:
    """Scrapes the daemon that has that socket, for a process that is not the daemon itself."""

    async def scrape() -> bytes:
        try:
            async with connected(socket) as session, session.get(ROUTE, timeout=SOON) as response:
                if response.status == 200:
                    return await response.read()
                raise WorldError(f"the daemon at {socket} has no metrics (status {response.status}); start it anew")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise WorldError(f"the daemon at {socket} does not answer: {error or type(error).__name__}") from error

    return scrape
