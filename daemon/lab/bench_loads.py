"""What it costs to have a system: how long it takes to load and how much memory it holds, beside the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pilotfish.daemon.lab.bench_report import Spread
from pilotfish.daemon.lab.benchmark import Load


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """One system over all blocks. The ratios divide by the baseline's figure of the same block: below 1 is less."""

    system: str
    seconds: Spread
    resident: Spread  # bytes
    peak: Spread | None  # bytes
    seconds_ratio: Spread | None
    resident_ratio: Spread | None
    peak_ratio: Spread | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def load_figures(loads: Sequence[Load], base: str) -> list[LoadFigures]:
    """Every system that was started, in the order in which they were."""
    theirs = {(load.mode, load.round): load for load in loads if load.system == base}
    return [
        _figures([load for load in loads if load.system == name], theirs)
        for name in dict.fromkeys(load.system for load in loads)
    ]


def _figures(mine: Sequence[Load], theirs: dict[tuple[str, int], Load]) -> LoadFigures:
    def ratio(of: Callable[[Load], float | None]) -> Spread | None:
        pairs = ((of(load), of(theirs[load.mode, load.round])) for load in mine if (load.mode, load.round) in theirs)
        return Spread.of(own / other if own is not None and other else None for own, other in pairs)

    seconds, resident = Spread.of(load.seconds for load in mine), Spread.of(load.resident for load in mine)
    assert seconds is not None  # the system occurs
    assert resident is not None
    return LoadFigures(
        system=mine[0].system,
        seconds=seconds,
        resident=resident,
        peak=Spread.of(load.peak for load in mine),
        seconds_ratio=ratio(lambda load: load.seconds),
        resident_ratio=ratio(lambda load: load.resident),
        peak_ratio=ratio(lambda load: load.peak),
    )
