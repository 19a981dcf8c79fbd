"""How things stand, as one JSON object: the page, `pilotfish top` and whoever asks the API get the same.

docs/page.md describes it field by field.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import psutil

from pilotfish import __version__
from pilotfish.daemon.certify.verdicts import ModelReport
from pilotfish.daemon.config.types import Config, ModelSettings, model_key
from pilotfish.daemon.control.decision_log import OnStock, on_stock
from pilotfish.daemon.control.governor import ConnectedRunner, Governor
from pilotfish.daemon.dashboard.account import Account
from pilotfish.daemon.dashboard.shelf import Shelf, report_json
from pilotfish.hooks.errors import InvalidModelName
from pilotfish.manifests.names import ModelName

T = TypeVar("T")

FORMAT = 1  # counted up when a field changes its meaning or goes


class StateOfThings:
    """Puts it together from what the daemon knows; touches no disk."""

    def __init__(self, governor: Governor, shelf: Shelf, account: Account, trouble: Callable[[], str]) -> None:
        """`trouble` says why no history is kept."""
        self._governor = governor
        self._shelf = shelf
        self._account = account
        self._trouble = trouble
        self.url = ""  # where the page is

    def json(self) -> dict[str, Any]:
        """Everything but the events, JSON-ready."""
        governor, config = self._governor, self._governor.config
        runners = [_runner_json(runner) for runner in governor.runners]
        return {
            "format": FORMAT,
            "pilotfish": __version__,
            "at": time.time(),
            "daemon": {"pid": os.getpid(), "started": governor.started, "url": self.url},
            "config": {
                "path": str(config.path) if config.path else None,
                "error": governor.config_error,
                "enabled": config.speculation.enabled,
                "max_loss": config.speculation.max_loss,
            },
            "history": {"kept": config.page.history and not self._trouble(), "trouble": self._trouble()},
            "problems": sorted({*governor.plugin_problems, *(p for runner in runners for p in runner["problems"])}),
            "models": self._models(config, runners),
            "runners": runners,
            "account": self._account.summary(),
        }

    def _models(self, config: Config, runners: list[dict[str, Any]]) -> list[dict[str, Any]]:
        stock = {name: entry for entry in on_stock(self._shelf.decisions) for name in entry.model.split(", ") if name}
        loaded = {name: runner for runner in runners for name in (runner["model"], *runner["aliases"])}
        store, stocked, running = _by_name(self._shelf.models), _by_name(stock), _by_name(loaded)
        names = _by_name({name: name for name in (*config.models, *stock, *loaded, *self._shelf.models)})
        return [
            _model_json(name, config, store.get(key), running.get(key), stocked.get(key))
            for key, name in sorted(names.items(), key=lambda each: each[1])
        ]


def _model_json(
    name: str,
    config: Config,
    report: ModelReport | None,
    runner: Mapping[str, Any] | None,
    stock: OnStock | None,
) -> dict[str, Any]:
    mine = config.for_model(name)
    own = config.models.get(model_key(config.models, name) or "", ModelSettings()).enabled
    state, why = _standing(mine, report, runner, stock)
    return {
        "name": name,
        "enabled": mine.speculation.enabled,
        "own_switch": own,
        "parity": mine.speculation.parity,
        "max_width": mine.speculation.max_width,
        "drafters": list(mine.drafters.order),
        "state": state,
        "why": why,
        "runner": runner["id"] if runner else None,
        "stock": {"reason": stock.reason, "since": stock.since} if stock and not runner else None,
        "store": report_json(report) if report else None,
    }


def _standing(
    mine: Config, report: ModelReport | None, runner: Mapping[str, Any] | None, stock: OnStock | None
) -> tuple[str, str]:
    """A word and a sentence: `active`, `parked`, `plain`, `off`, `stock`, `cannot`, `ready` (it would), `unknown`."""
    if runner is not None:
        return runner["state"], runner["reason"]
    if not mine.speculation.enabled:
        return "off", f"switched off in {mine.path or 'the config'}"
    if stock is not None:
        return "stock", stock.reason
    if report is None:
        return "unknown", "it is not in the model store"
    if report.verdict.startswith("no"):
        left = report.left_to_stock
        return "cannot", report.reason or (left.reason if left else "") or report.certificate or report.verdict
    return "ready", ""


def _runner_json(runner: ConnectedRunner) -> dict[str, Any]:
    table = runner.to_json()
    pool = table.pop("pool")
    table["drafters"] = [
        {"name": name, **pool.get(name, {"state": "", "about": ""})}
        for name in dict.fromkeys((*table["drafters"], *pool))
    ]
    return {**table, "memory": _memory(runner.registration.pid)}


def _memory(pid: int) -> int | None:
    """Bytes of memory that a process has resident, its weights included; None where that cannot be seen."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError, ValueError):
        return None


def _by_name(table: Mapping[str, T]) -> dict[object, T]:
    """By what names have in common that mean one model."""
    return {_folded(name): value for name, value in table.items()}


def _folded(name: str) -> object:
    try:
        return ModelName.parse(name).folded
    except InvalidModelName:  # a bare file
        return name
