"""What the daemon knows and decides: the config in force, who runs, and what each runner is to do.

Everything here happens on the event loop and touches neither disk nor network. Runners wait on their own event; a
change wakes those whose plan it alters.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control.happenings import Happenings, differences
from pilotfish.daemon.control.ledger import Ledger
from pilotfish.daemon.control.pace import Pace
from pilotfish.daemon.control.plans import Plan, Registration, Report
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.core.totals import Totals
from pilotfish.hooks.errors import RequestError

log = logging.getLogger("pilotfish.daemon")


@dataclass(slots=True, eq=False)
class ConnectedRunner:
    """A runner whose connection is open."""

    id: str
    registration: Registration
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    report: Report = field(default_factory=Report)
    sent: Plan | None = None
    told: Sight = Sight.NOTHING  # how much it knows to be looked at
    pace: Pace = field(default_factory=Pace)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        pace = {"tokens_per_second": self.pace.now(time.monotonic())}
        return {"id": self.id, **self.registration.to_json(), **self.report.to_json(), **pace}


class Governor:
    """The daemon's memory. `config_error` says why the file is not what is in force; empty when it is.

    `news` counts what happened, so that whoever looks knows whether to look again. `reported` are called with every
    report of a runner, `lived` with what it tells while somebody looks at so much as `sight` says.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.config_error = ""
        self.reloads = 0
        self.generation = 0
        self.plugins = ""
        self.plugin_problems: tuple[str, ...] = ()
        self._runners: dict[str, ConnectedRunner] = {}
        self._numbers = itertools.count(1)
        self.started = time.time()
        self.happenings = Happenings()
        self.news = 0
        self.sight = Sight.NOTHING
        self.reported: list[Callable[[Registration, Report], None]] = []
        self.lived: list[Callable[[ConnectedRunner, Sequence[dict[str, Any]]], None]] = []
        self.ledger = Ledger(Measures(), self.started)
        self._totals = Ledger(Totals())

    def plan(self, *models: str) -> Plan:
        """What is in force for a model, or for several with the same weights."""
        return Plan(self.config.for_models(models), self.plugins, self.generation)

    def use_config(self, config: Config) -> None:
        """A config that is good is in force from now on."""
        self.config, self.config_error = config, ""
        self.reloads += 1
        self._happened("config", "", f"in force: {config.path or 'the defaults'}")
        log.info("%s: in force", config.path or "default config")
        self._wake()

    def config_failed(self, why: str) -> None:
        """The file is no good; what was in force stays."""
        if why != self.config_error:
            log.warning("%s; the last good config stays in force", why)
            self._happened("config", "", f"not in force: {why}")
        self.config_error = why

    def use_plugins(self, fingerprint: str, problems: tuple[str, ...] = ()) -> None:
        """The files in the plugin folders are these from now on, but for those of which `problems` speaks."""
        if fingerprint == self.plugins:
            return
        self.plugins, self.plugin_problems = fingerprint, problems
        for problem in problems:
            log.warning("%s", problem)
        self.generation += 1
        if self.generation > 1:
            self._happened("plugins", "", f"the plugin folders' files are others: generation {self.generation}")
        log.info("plugin folders: generation %d", self.generation)
        self._wake()

    def register(self, registration: Registration) -> ConnectedRunner:
        """A runner is there until `leave`."""
        runner = ConnectedRunner(str(next(self._numbers)), registration)
        self._runners[runner.id] = runner
        self._happened("loaded", registration.model, f"in the lane {registration.lane or 'plain'}")
        self.ledger.label(registration.model)
        log.info("runner %d (%s) on port %d is here", registration.pid, registration.model, registration.port)
        return runner

    def leave(self, runner: ConnectedRunner) -> None:
        """Its connection is gone; what it did stays in its model's totals."""
        if self._runners.pop(runner.id, None):
            gone = f"its runner, process {runner.registration.pid}, ended"
            self._happened("unloaded", runner.registration.model, gone)
            log.info("runner %d (%s) is gone", runner.registration.pid, runner.registration.model)

    def report(self, runner_id: str, report: Report) -> None:
        """A runner says how it is doing. Raises RequestError for one that is not connected."""
        runner = self._connected(runner_id)
        report = replace(report, totals=report.totals.in_ticks())  # as the sums have them, which are compared with it
        for kind, text in differences(runner.report, report):
            self._happened(kind, runner.registration.model, text)
        runner.report = report
        self.news += 1
        for tell in self.reported:
            tell(runner.registration, report)
        runner.pace.heard(report.measures.answered, time.monotonic())
        alive = {other.registration.process for other in self._runners.values()}
        self.ledger.hear(runner.registration, report.measures)
        self.ledger.settle(alive)
        self._totals.hear(runner.registration, report.totals)
        self._totals.settle(alive)

    def watch(self, sight: Sight) -> None:
        """Somebody looks at so much of every request from now on."""
        self.sight = sight
        for runner in self._runners.values():
            if runner.registration.live and runner.told is not sight:
                runner.changed.set()

    def live(self, runner_id: str, events: Sequence[dict[str, Any]]) -> None:
        """What a runner tells while somebody looks. Raises RequestError for one that is not connected."""
        runner = self._connected(runner_id)
        for tell in self.lived:
            tell(runner, events)

    @property
    def runners(self) -> tuple[ConnectedRunner, ...]:
        """Those that are connected."""
        return tuple(self._runners.values())

    def totals(self) -> dict[str, Totals]:
        """What was done per model by those of whom the daemon has heard, ended runners included."""
        return self._totals.sums()

    def status(self) -> dict[str, Any]:
        """Everything, JSON-ready."""
        return {
            "daemon": {"pid": os.getpid(), "started": self.started},
            "config": {
                "path": str(self.config.path) if self.config.path else None,
                "error": self.config_error,
                "reloads": self.reloads,
                "in_force": to_table(self.config),
            },
            "plugins": {
                "folders": [str(folder) for folder in self.config.plugins.folders],
                "generation": self.generation,
                "problems": list(self.plugin_problems),
            },
            "runners": [runner.to_json() for runner in self._runners.values()],
            "models": {model: totals.to_json() for model, totals in self.totals().items()},
        }

    def _connected(self, runner_id: str) -> ConnectedRunner:
        runner = self._runners.get(runner_id)
        if runner is None:
            raise RequestError(f"no runner {runner_id!r} is connected; register first")
        return runner

    def _happened(self, kind: str, model: str, text: str) -> None:
        self.news += 1
        self.happenings.add(kind, model, text)

    def _wake(self) -> None:
        for runner in self._runners.values():
            if self.plan(*runner.registration.names) != runner.sent:
                runner.changed.set()
