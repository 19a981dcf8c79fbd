"""Surroundings in which nothing is wrong, to be made worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab.doctor.surroundings import Surroundings
from pilotfish.manifests.store import Store

GIB = 1 << 30
ENGINES = {"ik": "b" * 64, "llama": "a" * 64}


def fitting_overlay(*, dirty: bool = False, drift: list[str] | None = None) -> dict[str, Any]:
    build = {"version": "0.33.2", "revision": "", "dirty": dirty}
    return {"record": {"build": build}, "drift": drift or [], "prefix": "/overlay"}


def surroundings(
    *,
    config_error: str = "",
    in_force: dict[str, Any] | None = None,
    here: list[str] | None = None,
    engine_problems: list[str] | None = None,
    plugin_problems: list[str] | None = None,
    runners: list[dict[str, Any]] | None = None,
    daemon: bool = True,
    **changes: Any,
) -> Surroundings:
    """Everything runs, nothing is loaded, and there are no models."""
    overview = {
        "daemon": {"running": daemon},
        "config": {"path": None, "error": config_error, "in_force": in_force or to_table(Config())},
        "engines": {"here": ["llama", "ik"] if here is None else here, "problems": engine_problems or []},
        "plugins": {"problems": plugin_problems or []},
        "runners": runners or [],
    }
    well: dict[str, Any] = {
        "overview": overview,
        "overlay": fitting_overlay(),
        "ollama_url": "http://127.0.0.1:11434",
        "ollama_version": "0.33.2",
        "engines": ENGINES,
        "ollamas_llama": "",
        "store": Store(Path("/nowhere")),
        "models": (),
        "skipped": (),
        "state_dir": Path("/nowhere"),
        "free": 8 * GIB,
        "total": 16 * GIB,
        "held": {},
    }
    return Surroundings(**{**well, **changes})
