"""How things stand, put together from the daemon, if one runs, and from what lies on disk, if none does."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.reader import parse, to_table
from pilotfish.daemon.config.types import Config, engines_of, model_key
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.control.address import socket_path
from pilotfish.daemon.control.control_client import ask_status
from pilotfish.daemon.control.plans import plugin_problems
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.registry.spread import look_at
from pilotfish.hooks.errors import ConfigError, EngineError
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.store import Store

RECENT = 20  # decisions that are shown


async def overview(store: Store) -> dict[str, Any]:
    """`daemon`, `config`, `engines`, `far_ends`, `plugins`, `runners`, `models`, `stock`, `decisions`.

    JSON-ready, with the same keys in any case. `stock` has an entry for every model whose last launch went to the stock
    server, by name.
    """
    config, error = _config()
    socket = _socket(config)
    told = await ask_status(Path(socket)) if socket else None
    if told is not None:
        config, error = (
            parse(told["config"]["in_force"], _path(told["config"]["path"])),
            told["config"]["error"],
        )
    logged = decision_log.read(state_dir())
    decisions = [asdict(decision) for decision in logged]
    return {
        "daemon": {"running": told is not None, "socket": socket, **(told["daemon"] if told else {})},
        "config": {"path": str(config.path) if config.path else None, "error": error, "in_force": to_table(config)},
        "engines": _engines(config),
        "far_ends": await asyncio.to_thread(_far_ends, config),
        "plugins": told["plugins"] if told else _plugins(config),
        "runners": told["runners"] if told else [],
        "models": _models(store, config, told["models"] if told else {}, decisions),
        "stock": [asdict(one) for one in decision_log.on_stock(logged)],
        "decisions": decisions[-RECENT:],
    }


def _config() -> tuple[Config, str]:
    """What a runner that starts now would use, and what is wrong with the file."""
    try:
        path = config_file.find()
        return (Config() if path is None else config_file.load_written(path)), ""
    except ConfigError as error:
        return (config_file.last_good(path) if path else None) or Config(), str(error)


def _engines(config: Config) -> dict[str, Any]:
    """The `choice`, the engines that it leaves and that may compute `here`, and why others may not."""
    registry, choice = Registry.built_in(config), config.engine.choice
    names = config.engines if config.engine.rpc else engines_of(choice)
    try:  # no layers on an accelerator: which engines have one, a launch finds out
        options = EngineOptions(gpu_layers=0, state_dir=state_dir())
        here = [verifier.name for verifier in fit_verifiers(registry, names, options)]
    except EngineError as error:
        return {"choice": choice, "here": [], "problems": [str(error)]}
    return {"choice": choice, "here": here, "problems": list(registry.remarks)}


def _far_ends(config: Config) -> list[dict[str, Any]]:
    """Those of any model, as they are now: blocks for a few seconds where one is silent."""
    own = [settings.rpc for settings in config.models.values() if settings.rpc]
    return [asdict(seen) for seen in look_at(list(dict.fromkeys(chain(config.engine.rpc, *own))), config.engine)]


def _plugins(config: Config) -> dict[str, Any]:
    folders = config.plugins.folders
    return {"folders": [str(folder) for folder in folders], "problems": list(plugin_problems(folders))}


def _socket(config: Config) -> str | None:
    try:
        return str(socket_path(config))
    except ConfigError:
        return None


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _models(
    store: Store, config: Config, totals: dict[str, Any], decisions: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Every model of the store, of the config and of the daemon's totals, with what is in force for it."""
    names = {manifest.name.short for manifest in store.models().models}
    names |= {name for name in config.models if not model_key(dict.fromkeys(names), name)} | totals.keys()
    # Models that share their weights are launched as one.
    last = {name: decision for decision in decisions for name in decision["model"].split(", ")}
    return [
        {
            "name": name,
            "enabled": mine.speculation.enabled,
            "parity": mine.speculation.parity,
            "max_width": mine.speculation.max_width,
            "drafters": list(mine.drafters.order),
            "decision": last.get(name),
            "totals": totals.get(name),
        }
        for name in sorted(names)
        for mine in (config.for_model(name),)
    ]
