"""From measurements to a lane: width classes, what each lane would cost, and which one to take.

The measurement of an engine setting holds, for each site (a place in a context), the digests of the rows that every
width gave for the same tokens. Widths whose rows agree wherever both were compared are one class; a lane is a class,
or what is left of it over all sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.hooks.types import EngineSetting, Lane, Parity, in_blocks

MAX_WIDTH = 33  # wider blocks never paid on the machines measured: a forward's cost grows with its width
ALL_WIDTHS = tuple(range(1, MAX_WIDTH + 1))

PLAIN_SHARE = 0.5  # of the tokens are taken to come from plain steps: nothing was proposed for them
ACCEPTANCE = 0.8  # of each further proposed token, for the others
LOAD_TOKENS = 10_000.0  # generated per load: what loading takes longer than stock's is spread over so many
PROMPT_TOKENS = 2.0  # prompt tokens fed per generated token; conversations reuse most of theirs
LONG_PROMPTS = 0.5  # of prompt tokens are in prompts of a whole block and more
PLAIN_TOLERANCE = 1.15  # plain decoding in a lane may cost this many of stock's: timing noise, not a budget
MAX_TOLERANCE = 1.5  # however noisy the machine
NEAR = 1.03  # prices this close are the same price


@dataclass(frozen=True, slots=True)
class Site:
    """Rows after `start` tokens of material number `material`: even ones are random ids, odd ones text."""

    material: int
    start: int
    rows: int

    @property
    def end(self) -> int:
        """The cells in use when all rows are computed."""
        return self.start + self.rows


Rows = Mapping[int, Sequence[bytes]]  # width -> digests, in order from the site's start
Costs = Mapping[tuple[int, int], float]  # (width, position) -> seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """One setting, measured. `stock_costs` and `stock_prefill` were taken in turns with its own.

    `prefill` is seconds per prompt token, `long_prefill` those of long prompts where they are read otherwise, `load`
    seconds until the first forward, `noise` how much slower than the fastest stock's median step was, `divergence` how
    far another engine's rows are from libllama's (None: not known). `company` is what each of the launch's requests at
    once pays for a plain step, in steps of a request alone: 1 where there is one, or they take turns. `going_back` is
    what taking a block back takes besides forwarding its right tokens again; None where tails are cut. `timed` has the
    rows of the forwards that were timed, by position, all of the whole model; `of_part` says that `rows` are of a part
    of it. With `trouble` the setting is of no use and the rest may be missing.
    """

    setting: EngineSetting
    rows: Mapping[Site, Rows] = field(default_factory=dict)
    costs: Costs = field(default_factory=dict)
    prefill: float = 0.0
    stock_costs: Costs = field(default_factory=dict)
    stock_prefill: float = 0.0
    noise: float = 1.0
    load: float = 0.0
    stock_load: float = 0.0
    divergence: float | None = None
    trouble: str = ""
    long_prefill: float | None = None
    company: float = 1.0
    stock_company: float = 1.0
    going_back: float | None = None
    timed: Mapping[int, Rows] = field(default_factory=dict)
    of_part: bool = False

    @property
    def prompt_seconds(self) -> float:
        """Seconds per prompt token, long prompts and short ones together."""
        if self.long_prefill is None:
            return self.prefill
        return LONG_PROMPTS * self.long_prefill + (1 - LONG_PROMPTS) * self.prefill

    @property
    def prompt_ratio(self) -> float:
        """What feeding a prompt costs, relative to stock."""
        return self.prompt_seconds / self.stock_prefill if self.stock_prefill else 1.0

    @property
    def load_share(self) -> float:
        """Seconds per generated token that loading takes longer than stock's."""
        return max(0.0, self.load - self.stock_load) / LOAD_TOKENS


@dataclass(frozen=True, slots=True)
class Offer:
    """A lane that the rows allow, with the expected seconds per generated token, and stock's without speculation."""

    lane: Lane
    seconds: float
    stock_seconds: float

    @property
    def ratio(self) -> float:
        """Expected time relative to plain stock; below 1 is faster."""
        return self.seconds / self.stock_seconds if self.stock_seconds else 1.0


def agree(a: Sequence[bytes], b: Sequence[bytes]) -> bool:
    """Whether two walks over the same tokens gave the same rows where both went; never without a common row."""
    common = min(len(a), len(b))
    return common > 0 and list(a[:common]) == list(b[:common])


def classes(rows: Rows) -> tuple[tuple[int, ...], ...]:
    """The widths of one site, grouped by equal rows; each class begins with its narrowest width."""
    found: list[list[int]] = []
    for width in sorted(rows):
        for group in found:
            if agree(rows[group[0]], rows[width]):
                group.append(width)
                break
        else:
            found.append([width])
    return tuple(map(tuple, found))


def contradicted(rows: Mapping[Site, Rows], timed: Mapping[int, Rows]) -> bool:
    """Whether widths that agree at every site differ where the whole model was timed."""
    found = set(itertools.chain.from_iterable(timed.values()))
    pairs = [(a, b) for a, b in itertools.combinations(sorted(found), 2) if _agree_everywhere(rows, a, b)]
    return any(a in at and b in at and not agree(at[a], at[b]) for at in timed.values() for a, b in pairs)


def _agree_everywhere(rows: Mapping[Site, Rows], a: int, b: int) -> bool:
    return bool(rows) and all(a in here and b in here and agree(here[a], here[b]) for here in rows.values())


def common_class(sites: Iterable[Rows], base: int) -> tuple[int, ...]:
    """The widths that agree with `base` at every site; empty when `base` was not measured everywhere."""
    kept: set[int] | None = None
    for rows in sites:
        here = {width for width in rows if width >= base and base in rows and agree(rows[base], rows[width])}
        kept = here if kept is None else kept & here
    return tuple(sorted(kept or ()))


def offers(measured: Measured, stock: Measured, switch_points: Sequence[int]) -> Iterator[Offer]:
    """Every lane that a setting's rows allow: over all contexts, and wider ones that end at a switch point."""
    if measured.trouble or not measured.rows:
        return
    whole = {base: common_class(measured.rows.values(), base) for base in (1, 2)}
    for base, widths in whole.items():
        padding = base > 1 and measured.going_back is not None  # which would be taken back after every step
        if len(widths) > 1 and not (base > 1 and base in whole[1]) and not padding:
            yield _offer(measured, stock, widths, None)
        for point in switch_points:
            below = [rows for site, rows in measured.rows.items() if site.end <= point]
            more = common_class(below, base)
            if len(more) > max(1, len(widths)) and base == 1:
                yield _offer(measured, stock, more, point)


def _offer(measured: Measured, stock: Measured, widths: tuple[int, ...], limit: int | None) -> Offer:
    as_stock = widths[0] == 1 and measured.setting.engine == STOCK_ENGINE and same_steps(measured, stock)
    parity = Parity.STOCK if as_stock else Parity.LANE
    lane = Lane(measured.setting.title, widths, measured.setting, parity, max_context=limit)
    return Offer(
        lane,
        expected_seconds(lane, measured) + measured.load_share,
        plain_seconds(measured.stock_costs, measured.stock_prefill, measured.stock_company),
    )


def same_steps(measured: Measured, stock: Measured) -> bool:
    """Whether single steps give stock's rows, at every site that both know."""
    sites = measured.rows.keys() & stock.rows.keys()
    return bool(sites) and all(agree(measured.rows[site][1], stock.rows[site][1]) for site in sites)


def plain_seconds(costs: Costs, prefill: float, company: float = 1.0) -> float:
    """Seconds per generated token without speculation, prompt included, of as many requests as `company` is for."""
    singles = [seconds for (width, _), seconds in costs.items() if width == 1]
    return company * sum(singles) / max(1, len(singles)) + PROMPT_TOKENS * prefill


def expected_seconds(lane: Lane, measured: Measured) -> float:
    """Seconds per generated token, prompt included, under the assumptions at the top of this file."""
    positions = sorted({position for _, position in measured.costs})
    per_token = [_per_token(lane, measured, position) for position in positions]
    return sum(per_token) / max(1, len(per_token)) + PROMPT_TOKENS * measured.prompt_seconds


def _per_token(lane: Lane, measured: Measured, position: int) -> float:
    """In company drafts are verified alone, or not at all where plain steps together give more."""
    plain = _company(lane, measured) * cost_at(measured.costs, lane.widths[0], position)
    if lane.max_context is not None and position >= lane.max_context:
        return plain
    rounds = [round_seconds(lane, measured, width, position) / _committed(width) for width in lane.widths]
    return PLAIN_SHARE * plain + (1 - PLAIN_SHARE) * min(plain, *rounds)


def round_seconds(lane: Lane, measured: Measured, width: int, position: int) -> float:
    """What a forward of `width` is expected to take, with what a rejection takes where the block is taken back."""
    seconds = cost_at(measured.costs, width, position)
    if measured.going_back is None:
        return seconds
    for kept in range(1, width):
        again = sum(cost_at(measured.costs, block, position) for block in in_blocks(kept, lane.widths))
        seconds += (1 - ACCEPTANCE) * ACCEPTANCE ** (kept - 1) * (measured.going_back + again)
    return seconds


def pays(lane: Lane, measured: Measured) -> bool:
    """Whether drafts can save time: where blocks are taken back that may cost more than they save."""
    return measured.going_back is None or any(
        round_seconds(lane, measured, width, position) < _committed(width) * cost_at(measured.costs, 1, position)
        for position in {position for _, position in measured.costs}
        for width in lane.widths[1:]
    )


def _company(lane: Lane, measured: Measured) -> float:
    """Steps that are padded were not timed together."""
    return measured.company if lane.widths[0] == 1 else 1.0


def _committed(width: int) -> float:
    """Tokens that a round with width - 1 proposals is expected to commit."""
    return (1 - ACCEPTANCE**width) / (1 - ACCEPTANCE)


def cost_at(costs: Costs, width: int, position: int) -> float:
    """Seconds of a forward of `width`; between two measured widths on the line through them."""
    known = sorted(w for w, p in costs if p == position)
    if (width, position) in costs:
        return costs[width, position]
    low = max((w for w in known if w < width), default=known[0])
    high = min((w for w in known if w > width), default=known[-1])
    if low == high:
        return costs[low, position] * width / low
    share = (width - low) / (high - low)
    return costs[low, position] + share * (costs[high, position] - costs[low, position])


def reference(engine: str) -> str:
    """Whose time ratios are relative to, for a person: `engine` computed in stock settings."""
    return "stock's time" if engine == STOCK_ENGINE else f"the time of {engine}'s plain decoding"


def plain_ratio(lane: Lane, measured: Measured) -> float:
    """What the lane's plain step costs, relative to stock's single step taken in turns with it."""
    pairs = [
        (cost_at(measured.costs, lane.widths[0], position), seconds)
        for (width, position), seconds in measured.stock_costs.items()
        if width == 1
    ]
    stock = sum(seconds for _, seconds in pairs)
    return sum(own for own, _ in pairs) / stock if stock else 1.0


def company_ratio(lane: Lane, measured: Measured) -> float:
    """What the lane's plain step costs each of the launch's requests at once, relative to stock's."""
    return plain_ratio(lane, measured) * _company(lane, measured) / measured.stock_company


def affordable(offer: Offer, measured: Measured) -> bool:
    """Whether the lane costs nothing when nothing is drafted: its plain steps, and they and prompts together, whether
    one request is answered or as many as there are slots.

    Where timings scatter more than the tolerance, a difference within the scatter counts as none. A padded lane gets
    no such credit, and must be expected to gain something besides.
    """
    steps = max(plain_ratio(offer.lane, measured), company_ratio(offer.lane, measured))
    prompts = PROMPT_TOKENS * measured.stock_prefill
    stock_steps = offer.stock_seconds - prompts
    both = (steps * stock_steps + PROMPT_TOKENS * measured.prompt_seconds) / offer.stock_seconds
    if not pays(offer.lane, measured):
        return False
    if offer.lane.widths[0] > 1:
        return steps <= PLAIN_TOLERANCE and both <= PLAIN_TOLERANCE and offer.ratio < 1
    tolerance = min(max(PLAIN_TOLERANCE, measured.noise), MAX_TOLERANCE)
    return steps <= tolerance and both <= tolerance


def ranked(found: Sequence[Offer]) -> list[Offer]:
    """Best first: the lowest expected time relative to stock; of equal ones stock's ids, then those that hold in every
    context, then the most widths."""
    left, order = list(found), []
    while left:
        best = min(offer.ratio for offer in left)
        near = [offer for offer in left if offer.ratio <= NEAR * best]
        near.sort(key=_preference)
        order.append(near[0])
        left.remove(near[0])
    return order


def _preference(offer: Offer) -> tuple[bool, bool, int]:
    """A sort key among lanes of one price. Prices are of short contexts, which most answers leave behind."""
    lane = offer.lane
    return lane.parity is not Parity.STOCK, lane.max_context is not None, -len(lane.widths)


def ranges(widths: Sequence[int]) -> str:
    """For people: `1-7, 9`."""
    parts: list[list[int]] = []
    for width in widths:
        if parts and parts[-1][1] == width - 1:
            parts[-1][1] = width
        else:
            parts.append([width, width])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
