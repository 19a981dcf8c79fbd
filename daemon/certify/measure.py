"""The first look at a setting: where the engine changes its code, which widths agree, and what forwards cost."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

from pilotfish.daemon.certify.lanes import MAX_WIDTH, Costs, Rows, Site, classes
from pilotfish.daemon.certify.probe_driver import Deadline, ProbeDriver

# Positions where forwards are timed, the second where the context has room. Rows are compared there, too, and prompts
# are timed up to the second, so that hardly any prompt is fed for one purpose alone.
SHORT, LONG = 64, 264
COST_WIDTHS = (1, 2, 3, 4, 8, 16, 32)
REPEATS = 3  # of each width in turn, as long as there is time
TIMING_SHARE = 0.15  # of the time left, for more than one turn of steps and blocks, and again of prompts
NARROW = 2  # widths up to this are timed more often: plain steps decide whether a lane is taken at all
WIDE = 8  # widths above this are timed once
NARROW_REPEATS = 4
PREFILL = LONG  # tokens of an ordinary prompt; the longer it is, the more its attention counts
PREFILL_REPEATS = 2

FIRST_LENGTH = 32
SIGNATURE_WIDTHS = (1, 2, 4)
SIGNATURE_ROWS = 4  # one row of a whole vocabulary's logits shows a changed kernel nearly always; these are for luck

GLANCE_ROWS = MAX_WIDTH + 1
TIERS = tuple(tuple(range(1, most + 1)) for most in (MAX_WIDTH, 16, 8, 4))
ROW_COST = 0.6  # single steps that a row of a wider forward takes, roughly
GLANCE_LEAST = 16  # rows of every width, in whole blocks that fit; one block where it is wider


BEYOND = 8  # tokens past a switch point, where rows are compared
SWITCH_POINT_BLOCK = 32  # tokens; short blocks, so that a bisection feeds little again


def find_switch_points(driver: ProbeDriver, limit: int, seconds: float) -> tuple[int, ...]:
    """The numbers of cells at which the widths that agree change, in contexts of up to `limit` cells.

    Lengths double from 32; between two whose widths agree differently the change is bisected to the token. With
    cells counted as here, forwards that use at most that many cells run the code before the switch point. No longer
    length is tried once `seconds` have passed.
    """
    driver = ProbeDriver(driver.probe, driver.material, driver.deadline, SWITCH_POINT_BLOCK)
    patience = driver.deadline.sooner(seconds)
    lengths = [FIRST_LENGTH]
    while 2 * lengths[-1] + SIGNATURE_ROWS <= limit:
        lengths.append(2 * lengths[-1])
    if lengths[-1] + SIGNATURE_ROWS > limit:
        return ()
    points = []
    before = _signature(driver, lengths[0])
    for low, high in itertools.pairwise(lengths):
        if patience.left <= 0:
            break
        after = _signature(driver, high)
        if after != before:
            point = _bisect(driver, low, high, before)
            if _confirmed(driver, point - SIGNATURE_ROWS, before, after, (low, high)):
                points.append(point)
        before = after
    return tuple(points)


def _bisect(driver: ProbeDriver, low: int, high: int, before: object) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        if _signature(driver, middle) == before:
            low = middle
        else:
            high = middle
    return low + SIGNATURE_ROWS


def _confirmed(driver: ProbeDriver, last: int, before: object, after: object, within: tuple[int, int]) -> bool:
    """Whether lengths on both sides of a change agree with it: kernels that differ rarely also agree by chance."""
    low, high = within
    earlier, later = (max(low, last - 5), max(low, last - 23)), (min(high, last + 6), min(high, last + 24))
    return all(_signature(driver, length) == before for length in earlier) and all(
        _signature(driver, length) == after for length in later
    )


def _signature(driver: ProbeDriver, length: int) -> object:
    site = Site(0, length, SIGNATURE_ROWS)
    return classes({width: driver.walk(site, width) for width in SIGNATURE_WIDTHS})


def glance_sites(switch_points: Sequence[int], limit: int) -> tuple[Site, ...]:
    """Where every setting is looked at: a short context, and one past each switch point."""
    # LONG lies behind 256, where the attention of ggml's CPU backend has one, found here or not
    starts = [SHORT, LONG, *(point + BEYOND for point in switch_points)]
    return tuple(Site(0, start, GLANCE_ROWS) for start in sorted(set(starts)) if 0 < start <= limit - GLANCE_ROWS)


def glance(
    driver: ProbeDriver, site: Site, widths: Sequence[int], base: int = 1, until: Deadline | None = None
) -> Rows:
    """A few rows of every width; all of the site's for the width they are compared with, and for single steps.

    With `until` of those only as many as the others need, and once it has passed no further width is begun, but for the
    two narrowest.
    """
    wanted = {width: max(width, GLANCE_LEAST // width * width) for width in widths}
    most = min(site.rows, max(wanted.values())) if until else site.rows
    wanted |= {width: most for width in (1, 2, base) if width in wanted}
    rows: dict[int, tuple[bytes, ...]] = {}
    for width, count in wanted.items():
        if until and until.left <= 0 and len(rows) >= NARROW:
            break
        rows[width] = tuple(driver.walk(site, width, count))
    return rows


def widths_within(seconds: float, forward: Callable[[int], float], sites: int) -> tuple[int, ...]:
    """The most widths whose glances at `sites` sites are expected to fit `seconds`, if a forward takes so many."""
    for widths in TIERS[:-1]:
        single = max(GLANCE_LEAST, widths[-1]) * forward(1)
        rows = sum(max(1, GLANCE_LEAST // width) * forward(width) for width in widths)
        if sites * (single + rows) <= seconds:
            return widths
    return TIERS[-1]


def guessed(step: float) -> Callable[[int], float]:
    """What forwards take where only a single step's time is known."""
    return lambda width: step * (1 + ROW_COST * (width - 1))


def step_of(driver: ProbeDriver) -> float:
    """Seconds of a single step at SHORT."""
    found = []
    for _ in range(NARROW_REPEATS):
        driver.step_near(min(SHORT, driver.probe.n_ctx // 2), MAX_WIDTH)
        found.append(driver.probe.seconds)
    return min(found)


def as_steps_of(driver: ProbeDriver, costs: Costs) -> Costs:
    """What `costs` of the whole model would be where single steps take what they take in `driver`."""
    share = step_of(driver) / min(seconds for (width, _), seconds in costs.items() if width == 1)
    return {key: share * seconds for key, seconds in costs.items()}


def cost_positions(limit: int) -> tuple[int, ...]:
    """Where forwards are timed."""
    return tuple(position for position in (SHORT, LONG) if position + MAX_WIDTH <= limit) or (1,)


Samples = dict[tuple[int, int], list[float]]


def time_costs(drivers: Sequence[tuple[ProbeDriver, Sequence[int]]], positions: Sequence[int]) -> list[Samples]:
    """Seconds of forwards by (width, position) for each (driver, widths), taken in turns so that load hits all.

    Every one is timed once at least, and again as long as there is time.
    """
    samples: list[Samples] = [{} for _ in drivers]
    patience = _patience(drivers[0][0])
    for position in positions:
        for turn in range(REPEATS):
            if turn and patience.left <= 0:
                break
            for (driver, widths), found in zip(drivers, samples, strict=True):
                for width in widths:
                    for _ in range(_repeats(width, turn)):
                        found.setdefault((width, position), []).append(_time(driver, width, position))
    return samples


def _patience(driver: ProbeDriver) -> Deadline:
    return driver.deadline.sooner(TIMING_SHARE * driver.deadline.left)


def _repeats(width: int, turn: int) -> int:
    if width <= NARROW:
        return NARROW_REPEATS
    return 1 if width <= WIDE or turn == 0 else 0


def fastest(samples: Samples) -> dict[tuple[int, int], float]:
    """The fastest of each: whatever else the machine does can only make a forward slower."""
    return {key: min(found) for key, found in samples.items()}


def noise(samples: Samples) -> float:
    """How much slower than the fastest the median single step was: what timings here cannot tell apart."""
    ratios = [statistics.median(found) / min(found) for (width, _), found in samples.items() if width == 1]
    return max(ratios, default=1.0)


def _time(driver: ProbeDriver, width: int, position: int) -> float:
    if width == 1:
        driver.step_near(position, MAX_WIDTH)
    else:
        driver.block_at(position, width)
    return driver.probe.seconds


def time_all(drivers: Sequence[tuple[ProbeDriver, Sequence[int]]], limit: int) -> tuple[list[Samples], list[float]]:
    """`time_costs` at every position and `time_prefill`, in the order in which the least has to be fed."""
    *before, last = cost_positions(limit)
    samples = time_costs(drivers, before)
    prefill = time_prefill([driver for driver, _ in drivers], limit)
    for found, more in zip(samples, time_costs(drivers, [last]), strict=True):
        found |= more
    return samples, prefill


def time_prefill(drivers: Sequence[ProbeDriver], limit: int) -> list[float]:
    """Seconds per prompt token of each driver, taken in turns."""
    count = max(1, min(PREFILL, limit - 1))
    best, patience = [float("inf") for _ in drivers], _patience(drivers[0])
    for turn in range(PREFILL_REPEATS):
        if turn and patience.left <= 0:
            break
        for i, driver in enumerate(drivers):
            driver.forget()
            driver.goto(Site(0, count, 1))
            best[i] = min(best[i], driver.fed / count)
    return best
