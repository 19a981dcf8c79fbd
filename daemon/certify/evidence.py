"""The second look, at the lane that was chosen: enough rows, longer contexts, rejections, and reused prefixes.

Every comparison is with the lane's narrowest width. A width that differs once is out. What time did not allow
to compare is not promised: contexts end where the last comparison did.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pilotfish.daemon.certify.lanes import Measured, Rows, Site, agree, ranges
from pilotfish.daemon.certify.measure import GLANCE_ROWS, glance
from pilotfish.daemon.certify.probe_driver import FEW, GIVEN, OutOfTime, ProbeDriver
from pilotfish.hooks.protocols import TellsEdges
from pilotfish.hooks.types import Lane, Parity

TARGET_ROWS = 512  # compared rows per width and regime
SITE_ROWS = 132  # of one material, while deepening: four blocks of the widest width
SPAN = 1024  # positions of a regime that deepening moves over
REJECTION_WIDTHS = 6  # widths whose rejections are played through
PREFIXES_SHARE = 0.3  # of the time left, for prefixes in the whole model
SWEEP_STEP = 4  # each longer context is that many times the one before
SWEEP_COST = 3.0  # times the cost of the one before, at most: attention is not all of a forward
SWEEP_SHARE = 0.5  # of the time left may be expected for the next


@dataclass(slots=True)
class Regime:
    """Contexts of `start` to `end` cells, and how many rows of each width were compared there."""

    start: int
    end: int
    rows: dict[int, int] = field(default_factory=dict)

    def to_json(self, widths: Sequence[int]) -> dict[str, Any]:
        """JSON-ready values for these widths; JSON's keys are strings."""
        return {"start": self.start, "end": self.end, "rows": {str(w): self.rows.get(w, 0) for w in widths}}


class Evidence:
    """Collects evidence for `lane` on its own setting. `lane` shrinks when a comparison fails."""

    def __init__(
        self,
        driver: ProbeDriver,
        lane: Lane,
        measured: Measured,
        switch_points: Sequence[int],
        whole: ProbeDriver | None = None,
    ) -> None:
        """`whole` is the whole model where `driver` has a part of it."""
        self.lane = replace(lane, prefill_block=driver.block)
        self.findings: list[str] = []
        self.complete = False
        self._driver, self._whole = driver, whole
        self._base = lane.widths[0]
        self._limit = min(driver.probe.n_ctx, lane.max_context or driver.probe.n_ctx)
        edges = [0, *(s for s in switch_points if s < self._limit), self._limit]
        self.regimes = [Regime(a, b) for a, b in itertools.pairwise(edges)]
        self.compared = 0  # cells up to which every width of the lane was compared
        for site, rows in measured.rows.items():
            if site.end <= self._limit:
                self._count(site, {width: len(rows[width]) for width in lane.widths if width != self._base})
                self.compared = max(self.compared, site.end)

    def collect(self) -> None:
        """Gather until every width has TARGET_ROWS in every regime, or time is out."""
        tested = False
        try:
            self._regressions()
            self._rejections()
            self._prefixes()
            tested = True
            self._switch_points()
            self._edges()
            self._context_sweep()
            self._deepen()
            self.complete = True
        except OutOfTime:
            self.findings.append(
                "time ran out" + ("" if tested else " before rejections were tried: single steps only")
            )
        if not tested:
            self._keep(())
        if self.compared < self._limit:
            self.findings.append(f"compared up to {self.compared} of {self._driver.probe.n_ctx} tokens of context")
        self._end_at(min(self.compared, self._limit))

    def _regressions(self) -> None:
        """Where forwards were seen to part before: the last id of each given prefix leads the block."""
        for number, (prefix, _) in enumerate(self._driver.material.given, GIVEN):
            start = len(prefix) - 1
            if start + GLANCE_ROWS > self._limit:
                self.findings.append(f"a regression probe of {len(prefix)} ids does not fit the lane's context")
                continue
            after = f"after the {len(prefix)} ids of a regression probe"
            _, differ = self._glanced(Site(number, start, GLANCE_ROWS))
            self.findings.append(f"compared {after}")
            self._drop(differ, f"differs {after}")

    def _rejections(self) -> None:
        """Forwards of which only a part is kept: rows must not see what follows them, nor what was cut before."""
        for start in self._sites():
            self._reject_at(start)

    def _reject_at(self, start: int) -> None:
        site = Site(2, start, GLANCE_ROWS)
        base = self._driver.walk(site, self._base)
        for width in self._sample():
            if not self._survives(site, width, base):
                self._drop([width], f"rows change when later tokens are rejected, after {start} tokens")
        self._again(site, base)

    def _survives(self, site: Site, width: int, base: Sequence[bytes]) -> bool:
        ids = self._driver.goto(site, site.end)
        junk = self._driver.material.ids(4, site.end)
        at, kept = site.start, 1
        while at + kept <= site.start + len(base):
            block = ids[at : at + kept] + junk[at : at + width - kept]
            rows = self._driver.rows(block, width)
            if rows[:kept] != list(base[at - site.start : at - site.start + kept]):
                return False
            at += kept
            if not self._driver.probe.cut(at):
                return False
            kept = kept % width + 1
        return True

    def _again(self, site: Site, base: Sequence[bytes]) -> None:
        """After all those rollbacks the same steps must still give the same rows."""
        if not agree(self._driver.walk(site, self._base), base):
            self._keep(())
            self.findings.append(f"steps are not repeatable after {site.start} tokens")

    def _prefixes(self) -> None:
        """Whether cells written by other blocks give the same rows; if so any prefix may be reused."""
        exact = self._rewritten_alike(self._whole or self._driver)
        self.lane = replace(self.lane, exact_cache=exact, prefill_block=None if exact else self._driver.block)

    def _rewritten_alike(self, driver: ProbeDriver) -> bool:
        """Told by the whole model, with a share of the time: what a part of it shows, the rest may round away."""
        if self._whole is not None:
            share = driver.deadline.sooner(PREFIXES_SHARE * driver.deadline.left)
            driver = ProbeDriver(driver.probe, driver.material, share, driver.block)
        try:
            for start in self._sites():
                site = Site(0, start, GLANCE_ROWS)
                expected = driver.walk(site, self._base, self._base)
                if not all(self._same_after(driver, site, *way, expected) for way in self._ways(start)):
                    self.findings.append(f"cells depend on the block that wrote them, after {start} tokens")
                    return False
        except OutOfTime:
            if self._whole is None:
                raise
            self.findings.append("no time to compare prefixes that other blocks wrote")
            return False
        return True

    def _ways(self, start: int) -> list[tuple[list[int], list[int]]]:
        """Ways to write `start` cells: prompt blocks of odd sizes, and narrow blocks of the lane after them."""
        tail = min(48, start)
        narrow = [(_blocks(start - tail, self._driver.block), _blocks(tail, w)) for w in (self.lane.max_width, 1)]
        return [*narrow, (_blocks(start, 7 if start < 200 else 100), []), (_blocks(start, 61), [])]

    def _same_after(
        self, driver: ProbeDriver, site: Site, prompt: list[int], narrow: list[int], expected: Sequence[bytes]
    ) -> bool:
        ids, at = driver.material.ids(site.material, site.end), 0
        driver.forget()
        for block in prompt:
            driver.deadline.check()
            driver.probe.feed(ids[at : at + block])
            at += block
        for block in narrow:
            driver.rows(ids[at : at + block], self.lane.pad(block))
            at += block
            driver.probe.cut(at)  # padding
        found = driver.rows(ids[at : at + self._base], self._base)
        driver.forget()
        return agree(found, expected)

    def _switch_points(self) -> None:
        """One look at every width across each switch point, where a block lies on both sides of it."""
        for regime in self.regimes[1:]:
            self._look(Site(0, max(1, regime.start - GLANCE_ROWS // 2), GLANCE_ROWS))

    def _edges(self) -> None:
        """One look at every width where windows end and beyond, and at ids that send most of a block to few experts."""
        probe = self._driver.probe
        if not isinstance(probe, TellsEdges):
            return
        if probe.experts:
            for start in self._sites():
                self._look(Site(FEW, start, GLANCE_ROWS))
        for edge in probe.edges:
            if edge + 2 * GLANCE_ROWS <= self._limit:
                self._look(Site(0, edge, GLANCE_ROWS))
                self._reject_at(edge)

    def _context_sweep(self) -> None:
        """One look at every width in ever longer contexts, as long as the time left allows the next."""
        start, took = max(self.compared, 64), 0.0
        while self.compared < self._limit and SWEEP_COST * took <= SWEEP_SHARE * self._driver.deadline.left:
            start = min(SWEEP_STEP * start, self._limit - GLANCE_ROWS)
            if start <= 0:
                return
            before = self._driver.deadline.left
            if not self._look(Site(0, start, GLANCE_ROWS)):
                self._end_at(self.compared)
                return
            took = before - self._driver.deadline.left

    def _end_at(self, cells: int) -> None:
        self._limit = cells
        self.lane = replace(self.lane, max_context=cells)
        self.regimes = [replace(r, end=min(r.end, cells)) for r in self.regimes if r.start < cells]

    def _look(self, site: Site) -> bool:
        """False when so many widths differ there that the lane had better end before."""
        rows, differ = self._glanced(site)
        if 2 * len(differ) > len(self.lane.widths):
            self.findings.append(f"widths {ranges(differ)} differ after {site.start} tokens: the lane ends before")
            return False
        self._drop(differ, f"differs after {site.start} tokens")
        self._count(site, {w: len(r) for w, r in rows.items() if w != self._base and w not in differ})
        self.compared = max(self.compared, site.end)
        return True

    def _glanced(self, site: Site) -> tuple[Rows, list[int]]:
        """Rows of every width there, and the widths whose rows differ."""
        rows = glance(self._driver, site, self.lane.widths, self._base)
        return rows, [width for width in rows if not agree(rows[width], rows[self._base])]

    def _deepen(self) -> None:
        """More rows of every width in every regime, random ids and text in turns, moving over each regime."""
        number = 0
        while any(self._short_of(regime) for regime in self.regimes):
            for regime in self.regimes:
                if (widths := self._short_of(regime)) and (site := _site(regime, number, self._limit)):
                    self._compare(site, regime, widths)
            number += 1

    def _compare(self, site: Site, regime: Regime, widths: Sequence[int]) -> None:
        base = self._driver.walk(site, self._base)
        for width in widths:
            rows = self._driver.walk(site, width)
            if not agree(rows, base):
                self._drop(
                    [width], f"differs after {site.start} tokens of {'text' if site.material % 2 else 'random ids'}"
                )
            else:
                regime.rows[width] = regime.rows.get(width, 0) + min(len(rows), len(base))

    def _short_of(self, regime: Regime) -> list[int]:
        if regime.end - regime.start < GLANCE_ROWS + 2:
            return []
        return [w for w in self.lane.widths if w != self._base and regime.rows.get(w, 0) < TARGET_ROWS]

    def _count(self, site: Site, rows: dict[int, int]) -> None:
        regime = max((r for r in self.regimes if r.start < site.end), key=lambda r: r.start)
        for width, count in rows.items():
            regime.rows[width] = regime.rows.get(width, 0) + count

    def _sites(self) -> list[int]:
        """Positions below and above every switch point that leave room for a glance."""
        starts = [40, *(regime.start + 8 for regime in self.regimes[1:]), 264]
        return sorted({start for start in starts if start + 2 * GLANCE_ROWS <= self._limit}) or [1]

    def _sample(self) -> list[int]:
        """A few of the lane's widths, the narrowest and the widest among them."""
        widths = [width for width in self.lane.widths if width > 1] or [1]
        step = max(1, len(widths) // (REJECTION_WIDTHS - 1))
        return sorted({*widths[::step], widths[-1]})

    def _drop(self, widths: Sequence[int], why: str) -> None:
        if widths:
            self.findings.append(f"width {ranges(widths)} {why}")
            self._keep([w for w in self.lane.widths if w not in widths])

    def _keep(self, widths: Sequence[int]) -> None:
        kept = tuple(widths) or (self._base,)
        self.lane = replace(self.lane, widths=kept, parity=self.lane.parity if len(kept) > 1 else Parity.NONE)


def _site(regime: Regime, number: int, limit: int) -> Site | None:
    """The regime's site for a material: the first straddles the switch point before it, later ones move on."""
    end = min(regime.end, limit)
    rows = min(SITE_ROWS, end - regime.start - 2)
    room = min(SPAN, end - regime.start) - rows
    if number == 0 and regime.start:
        start = regime.start - rows // 2
    else:
        start = regime.start + (16 + 61 * number) % max(1, room)
    return Site(number, max(1, start), rows) if rows > 0 else None


def _blocks(total: int, size: int) -> list[int]:
    return [min(size, total - at) for at in range(0, total, size)]
