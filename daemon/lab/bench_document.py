"""The benchmark's result as one document: what was measured, on what, how quiet it was, and every run."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pilotfish import __version__
from pilotfish.daemon.lab.bench_loads import LoadFigures, load_figures
from pilotfish.daemon.lab.bench_report import Figures, figures
from pilotfish.daemon.lab.bench_systems import System
from pilotfish.daemon.lab.benchmark import Load, Run

FORMAT = 2


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A finished benchmark. `about` are the settings, `notes` are for whoever reads the figures."""

    systems: Sequence[System]
    base: str
    runs: Sequence[Run]
    about: Mapping[str, Any]
    quiet: Mapping[str, Any]
    failures: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    loads: Sequence[Load] = ()

    @property
    def figures(self) -> list[Figures]:
        """Computed anew each time."""
        return figures(self.runs, self.systems, self.base)

    @property
    def load_figures(self) -> list[LoadFigures]:
        """Computed anew each time."""
        return load_figures(self.loads, self.base)

    @property
    def exact(self) -> bool:
        """Whether every answer of pilotfish had the plain ids of its engine."""
        mine = {system.name for system in self.systems if system.engine}
        return all(run.equal is not False for run in self.runs if run.system in mine)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; ids and texts are left out, they were compared."""
        return {
            "format": FORMAT,
            "pilotfish": __version__,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "about": dict(self.about),
            "machine": machine(),
            "quiet": dict(self.quiet),
            "notes": list(self.notes),
            "systems": [_system_json(system) for system in self.systems],
            "baseline": self.base,
            "exact": self.exact,
            "failures": dict(self.failures),
            "figures": [figure.to_json() for figure in self.figures],
            "load_figures": [figure.to_json() for figure in self.load_figures],
            "loads": [asdict(load) for load in self.loads],
            "runs": [_run_json(run) for run in self.runs],
        }


def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "python": platform.python_version(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system_json(system: System) -> dict[str, Any]:
    return {key: getattr(system, key) for key in ("name", "about", "reference", "engine")}


def _run_json(run: Run) -> dict[str, Any]:
    table = {key: value for key, value in asdict(run).items() if key != "answer"}
    answer = {key: value for key, value in asdict(run.answer).items() if key not in ("ids", "text")}
    return table | answer
