"""What single steps and blocks take over far ends, and whether their rows are equal, by a certifier's own forwards."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pilotfish.daemon.certify.lanes import Site
from pilotfish.daemon.certify.measure import glance
from pilotfish.daemon.certify.probe_driver import ProbeDriver
from pilotfish.daemon.lab.spread.spread_row import BlockCost

AT = 64  # tokens before the forwards that are timed and compared
COMPARED = 32  # rows of each width
TURNS = 5  # of every width, after one that is not counted


def block_costs(driver: ProbeDriver, widths: Sequence[int]) -> tuple[BlockCost, ...]:
    """Of each width; single steps must be among them. Raises EngineError, OutOfTime."""
    rows = glance(driver, Site(0, AT, COMPARED), widths)
    taken: dict[int, list[float]] = {width: [] for width in widths}
    for turn in range(1 + TURNS):
        for width in widths:
            seconds = _seconds(driver, width)
            if turn:
                taken[width].append(seconds)
    return tuple(BlockCost(width, statistics.median(taken[width]), _alike(rows[width], rows[1])) for width in widths)


def _seconds(driver: ProbeDriver, width: int) -> float:
    ids = driver.goto(Site(0, AT, width), AT + width)
    driver.rows(ids[AT:], width)
    return driver.probe.seconds


def _alike(rows: Sequence[bytes], single: Sequence[bytes]) -> bool:
    return list(rows) == list(single[: len(rows)])
