"""What a loaded setting gives and costs: its rows at every site, its steps, blocks and prompts beside stock's."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pilotfish.daemon.certify.lanes import ALL_WIDTHS, Costs, Measured, Rows, Site, cost_at
from pilotfish.daemon.certify.measure import (
    COST_WIDTHS,
    GLANCE_LEAST,
    cost_positions,
    fastest,
    glance,
    noise,
    time_all,
    time_costs,
    time_prefill,
    widths_within,
)
from pilotfish.daemon.certify.opening import Opened
from pilotfish.daemon.certify.probe_driver import ProbeDriver
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import ReadsPromptsApart, RestoresStates, StepsTogether

log = logging.getLogger("pilotfish.certifier")

MOVED = 1.03  # of what stock takes: a prompt that is read with its cache types, the move of its cells included
GLANCE_SHARE = 0.7  # of the time left, which a glance may be expected to take: other work may slow it down

LEEWAY = 0.3  # of a site's share of the time, for the last width that is begun at each


def measure_stock(
    opened: Opened,
    sites: Sequence[Site],
    n_ctx: int,
    *,
    own: bool,
    alone: bool,
    slots: int = 1,
    part: Opened | None = None,
) -> Measured:
    """Stock settings: all of them where their own lane is wanted, otherwise what candidates are compared with.

    With `alone` no candidate can be timed in turns with them, prompts neither, so that they are timed here. Where there
    is a `part` of the model, that tells the rows.
    """
    driver = opened.driver
    rows: dict[Site, Rows] = {}
    if not driver.probe.obstacle:
        teller = part.driver if part else driver
        rows = {s: glance(teller, s, ALL_WIDTHS) if own else _single_steps(teller, s) for s in sites}
    samples = time_costs([(driver, COST_WIDTHS if own else (1,))], cost_positions(n_ctx))[0]
    prefill = time_prefill([driver], n_ctx)[0] if own or alone else 0.0
    costs, together = fastest(samples), company(driver, slots, exact=False)
    return Measured(
        opened.setting,
        rows,
        costs,
        prefill,
        stock_costs=costs,
        stock_prefill=prefill,
        noise=noise(samples),
        load=opened.load,
        stock_load=opened.load,
        company=company(driver, slots, exact=True) if own else together,
        stock_company=together,
        trouble=driver.probe.obstacle,
        going_back=_going_back(driver),
        timed=driver.timed,
        of_part=part is not None,
    )


def _going_back(driver: ProbeDriver) -> float | None:
    return driver.probe.going_back if isinstance(driver.probe, RestoresStates) else None


def _single_steps(driver: ProbeDriver, site: Site) -> Rows:
    return {1: tuple(driver.walk(site, 1, GLANCE_LEAST))}


def price(
    opened: Opened,
    widths: Sequence[int],
    stock: Measured,
    beside: ProbeDriver | None,
    n_ctx: int,
    *,
    slots: int = 1,
    apart: bool = False,
) -> Measured:
    """A candidate, timed in turns with stock's probe `beside`; without one, compared with `stock`.

    For a launch with `slots` slots; `apart`: long prompts are read with stock's cache types where the engine can.
    """
    driver = opened.driver
    timed = tuple(width for width in COST_WIDTHS if width <= widths[-1])
    if beside is None:
        (samples,), (prefill,) = time_all([(driver, timed)], n_ctx)
        stock_costs, stock_prefill, scatter = stock.costs, stock.prefill, stock.noise
    else:
        (samples, stocks), (prefill, stock_prefill) = time_all([(driver, timed), (beside, (1,))], n_ctx)
        stock_costs, scatter = fastest(stocks), noise(stocks)
    return Measured(
        opened.setting,
        costs=fastest(samples),
        prefill=prefill,
        long_prefill=MOVED * stock_prefill if apart and _as_stock_reads(opened) else None,
        stock_costs=stock_costs,
        stock_prefill=stock_prefill,
        noise=scatter,
        load=opened.load,
        stock_load=stock.load,
        company=company(driver, slots, exact=True),
        stock_company=stock.company,
        going_back=_going_back(driver),
        timed=driver.timed,
    )


def _as_stock_reads(opened: Opened) -> bool:
    """Whether long prompts are read apart, and by the code that stock reads them with."""
    probe, setting = opened.driver.probe, opened.setting
    able = isinstance(probe, ReadsPromptsApart) and probe.prompts_apart
    return able and setting.repack and not setting.environment


def company(driver: ProbeDriver, slots: int, *, exact: bool) -> float:
    """What one of `slots` requests at once pays for a plain step, in steps of a request alone.

    With `exact` they share forwards only where that changes no row; stock's do in any case.
    """
    probe = driver.probe
    if slots == 1 or not isinstance(probe, StepsTogether):
        return 1.0
    driver.deadline.check()
    try:
        step = probe.together(slots, exact=exact)
    except EngineError as error:  # as for want of memory
        log.warning("steps of %d requests at once could not be timed: %s", slots, error)
        return 1.0
    return step.seconds / (step.joined * step.alone) if step else 1.0


def compare(opened: Opened, costs: Costs, sites: Sequence[Site], widths: Sequence[int]) -> dict[Site, Rows]:
    """A few rows at every site, of as many of `widths` as are expected to fit the time left at these costs, and do."""
    at = max(position for _, position in costs)
    deadline = opened.driver.deadline
    fitting = widths_within(GLANCE_SHARE * deadline.left, lambda width: cost_at(costs, width, at), len(sites))
    tried = [width for width in widths if width <= fitting[-1]]
    rows: dict[Site, Rows] = {}
    last_first = sorted(sites, key=lambda site: site.start, reverse=True)  # there the prompt is fed already
    for i, site in enumerate(last_first):
        share = deadline.sooner(deadline.left / (len(sites) - i + LEEWAY))
        rows[site] = glance(opened.driver, site, tried, until=share)
        tried = list(rows[site])
    return {site: {width: rows[site][width] for width in tried} for site in sites}
