"""The first look: what stock costs, and which settings of which engines may be worth a second one.

libllama's stock settings are the measure for everything, where libllama is among the engines and takes the model;
otherwise it is the first engine that does, in its own plain setting. Every engine gets a look before any gets a second
one. One whose library does not take the model or whose rows are too far from libllama's is tried no further, and
neither is one whose first setting leaves nothing to look for.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace

from pilotfish.daemon.certify.candidates import candidates, stock_setting
from pilotfish.daemon.certify.divergence import StockRows
from pilotfish.daemon.certify.lanes import (
    ALL_WIDTHS,
    Measured,
    Site,
    affordable,
    classes,
    contradicted,
    offers,
    ranges,
)
from pilotfish.daemon.certify.measure import (
    as_steps_of,
    find_switch_points,
    glance_sites,
    guessed,
    step_of,
    widths_within,
)
from pilotfish.daemon.certify.opening import Opened, Opener
from pilotfish.daemon.certify.pricing import compare, measure_stock, price
from pilotfish.daemon.certify.probe_driver import Deadline, OutOfTime, ProbeDriver
from pilotfish.daemon.certify.suitability import too_far
from pilotfish.daemon.certify.task import CertificationTask, Progress
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.hooks.errors import BrokenModel, PilotfishError
from pilotfish.hooks.types import EngineSetting, Parity

log = logging.getLogger("pilotfish.certifier")

SWITCH_POINTS_SHARE = 0.06  # of the budget, for contexts that double while nothing is known about them
DIVERGENCE_SHARE = 0.04  # of the budget, for rows to compare an engine with libllama
GLANCES_SHARE = 0.7  # of the time left, for the first glances at all engines; a glance takes what it finds left
GLANCE_MOST = 0.5  # of it for the glances at one
OUT_OF_TIME = "time ran out before every setting was tried"
CUT_SHORT = "time ran out while it was measured"


class Survey:
    """`measured` begins with stock; what else is known afterwards stands in the other attributes."""

    def __init__(
        self, task: CertificationTask, opener: Opener, deadline: Deadline, budget: float, progress: Progress
    ) -> None:
        self.measured: list[Measured] = []
        self.refused: list[Measured] = []  # engines that were not looked at, with the reason
        self.reference = task.engines[0]  # whose stock settings are the measure
        self.switch_points: tuple[int, ...] = ()
        self.widths = ALL_WIDTHS  # that are tried
        self.n_ctx = task.options.n_ctx
        self.notes: list[str] = []
        self._task, self._opener, self._deadline = task, opener, deadline
        self._budget, self._progress = budget, progress
        self._beside: ProbeDriver | None = None  # stock's probe, while candidates are timed in turns with it
        self._stock_rows: StockRows | None = None
        self._apart: dict[str, float | None] = {}  # engine -> its divergence from libllama
        self._hopeless: set[str] = set()  # engines whose other settings need not be tried

    def run(self) -> None:
        """Look until everything was seen or time is out. Raises what the first engine does if none loads the model."""
        with contextlib.ExitStack() as stack:
            try:
                self._survey(stack)
            except OutOfTime:
                whom = " and ".join(self.unmeasured)
                self.notes.append(f"time ran out before {whom} could be measured" if whom else OUT_OF_TIME)

    @property
    def stock(self) -> Measured:
        """The reference in stock settings."""
        return self.measured[0]

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The engines for which time ran out before one of their settings was measured."""
        if self._task.identity.parity is Parity.STOCK:
            return ()
        return tuple(engine for engine in self._task.engines if not self._seen(engine, whole=True))

    def _survey(self, stack: contextlib.ExitStack) -> None:
        opened = self._open_stock(stack)
        driver = opened.driver
        self.n_ctx = driver.probe.n_ctx
        others = [engine for engine in self._task.engines if engine != self.reference]
        if driver.probe.obstacle and not others:
            self.measured.append(Measured(opened.setting, trouble=driver.probe.obstacle))
            return
        part = None if driver.probe.obstacle else self._opener.open_part(opened.setting, self._deadline, stack)
        if not driver.probe.obstacle:
            self._progress("looking for the context lengths at which the engine changes its code")
            teller = part.driver if part else driver
            self.switch_points = find_switch_points(teller, self.n_ctx, SWITCH_POINTS_SHARE * self._budget)
            teller.forget()
        self._progress("measuring stock settings")
        sites, own = glance_sites(self.switch_points, self.n_ctx), self._task.identity.parity is Parity.STOCK
        self.measured.append(self._measure_stock(opened, part, sites, own=own))
        if own:
            return
        self._choose_widths(len(sites), part)
        if part:
            part.driver.probe.close()
        self._keep_stock_rows(others, driver, stack)
        if self._task.keep_stock:
            self._beside = driver
        else:
            driver.probe.close()
        self._survey_candidates()

    def _measure_stock(self, opened: Opened, part: Opened | None, sites: Sequence[Site], *, own: bool) -> Measured:
        alone, slots = not self._task.keep_stock, self._task.options.slots
        return measure_stock(opened, sites, self.n_ctx, own=own, alone=alone, slots=slots, part=part)

    def _open_stock(self, stack: contextlib.ExitStack) -> Opened:
        """The first engine that takes the model, in stock settings."""
        first: PilotfishError | None = None
        for engine in self._task.engines:
            setting = stock_setting(self._task.options, engine)
            try:
                opened = self._opener.open(setting, self._deadline, stack)
            except PilotfishError as error:
                self.refused.append(self._refused(setting, error))
                first = first or error
                continue
            self.reference = engine
            return opened
        assert first is not None
        raise first

    def _refused(self, setting: EngineSetting, error: PilotfishError) -> Measured:
        """A setting that is of no use; what the library says of the model holds for the engine's others too."""
        if isinstance(error, BrokenModel):
            self._hopeless.add(setting.engine)
            if self._task.known:
                self._task.known.refuse(setting.engine, str(error))
        return Measured(setting, trouble=f"refused: {error}")

    def _choose_widths(self, sites: int, part: Opened | None) -> None:
        """Fewer widths for a model, or a machine, that is too slow for all of them on every engine."""
        longest = max(seconds for (width, _), seconds in self.stock.costs.items() if width == 1)
        step = self.stock.noise * (step_of(part.driver) if part else longest)
        share = self._deadline.left * min(GLANCE_MOST, GLANCES_SHARE / len(self._task.engines))
        most = widths_within(share, guessed(step), sites)[-1]
        if most < ALL_WIDTHS[-1]:
            self.widths = tuple(width for width in ALL_WIDTHS if width <= most)
            self.notes.append(f"only widths up to {most} were tried: more would not fit the time")

    def _keep_stock_rows(self, others: Sequence[str], driver: ProbeDriver, stack: contextlib.ExitStack) -> None:
        """libllama's rows, for the engines whose distance from it nobody knows."""
        if self.reference != STOCK_ENGINE:
            return
        known = self._task.known
        self._apart = {engine: known.divergence(engine) if known else None for engine in others}
        unknown = [engine for engine, divergence in self._apart.items() if divergence is None]
        if not unknown:
            return
        self._progress("keeping rows to compare engines with")
        try:
            self._stock_rows = StockRows(driver, DIVERGENCE_SHARE * self._budget)
            stack.callback(self._stock_rows.close)
        except PilotfishError as error:
            self.refused += [self._refused(stock_setting(self._task.options, engine), error) for engine in unknown]
        driver.forget()

    def _survey_candidates(self) -> None:
        pending = {engine: self._candidates(engine, weights_first=True) for engine in self._task.engines}
        unseen = [engine for engine, settings in pending.items() if settings]
        while unseen:
            share = self._deadline.sooner(self._deadline.left / len(unseen))
            engine = unseen.pop(0)
            pending[engine] = self._next(engine, pending[engine], share)
        while any(pending.values()):
            for engine, settings in pending.items():
                if settings:
                    pending[engine] = self._next(engine, settings, self._deadline)

    def _candidates(self, engine: str, *, weights_first: bool) -> list[EngineSetting]:
        """The engine's settings that are worth trying; none for one of which it is known that it is not offered."""
        if any(measured.setting.engine == engine for measured in self.refused):
            return []
        if engine == self.reference and self.stock.trouble:
            return []
        known, apart = self._task.known, self._apart.get(engine)
        if why := (known.refusal(engine) if known else "") or too_far(apart):
            self.refused.append(Measured(stock_setting(self._task.options, engine), divergence=apart, trouble=why))
            return []
        return candidates(self._task.options, engine, weights_first=weights_first)

    def _next(self, engine: str, settings: list[EngineSetting], deadline: Deadline) -> list[EngineSetting]:
        """Try the engine's next setting; those that are worth trying after it."""
        first = not self._seen(engine)
        measured = self._try(settings[0], deadline)
        self.measured.append(measured)
        offered = [f"{ranges(o.lane.widths)} at {o.ratio:.2f}" for o in offers(measured, self.stock, ())]
        log.info("%s: %s", measured.setting.title, measured.trouble or "; ".join(offered) or "no lane")
        self._deadline.check()
        if engine in self._hopeless or self._is_perfect(measured):
            return []
        if first and measured.rows:
            weights = len(classes(next(iter(measured.rows.values())))) > 1
            return self._candidates(engine, weights_first=weights)[1:]
        return settings[1:]

    def _seen(self, engine: str, *, whole: bool = False) -> bool:
        """Whether any of the engine's settings was tried, or need not be; with `whole`, also to the end."""
        if self.measured and self.stock.trouble and engine == self.reference:
            return True
        tried = [measured for measured in (*self.measured[1:], *self.refused) if measured.setting.engine == engine]
        return any(not whole or measured.trouble != CUT_SHORT for measured in tried)

    def _try(self, setting: EngineSetting, deadline: Deadline) -> Measured:
        with contextlib.ExitStack() as stack:
            try:
                return self._measure(self._opener.open(setting, deadline, stack))
            except PilotfishError as error:
                return self._refused(setting, error)
            except OutOfTime:
                return Measured(setting, trouble=CUT_SHORT)

    def _measure(self, opened: Opened) -> Measured:
        setting, driver = opened.setting, opened.driver
        divergence = self._divergence(setting.engine, driver)
        if why := driver.probe.obstacle or too_far(divergence):
            self._hopeless.add(setting.engine)
            return Measured(setting, load=opened.load, divergence=divergence, trouble=why)
        self._progress(f"timing: {setting.title}")
        options = self._task.options
        apart = self._task.prompts_apart and self.reference == STOCK_ENGINE and self.n_ctx > options.batch_size
        measured = price(opened, self.widths, self.stock, self._beside, self.n_ctx, slots=options.slots, apart=apart)
        self._progress(f"comparing widths: {setting.title}")
        return replace(self._compared(opened, measured), divergence=divergence)

    def _compared(self, opened: Opened, measured: Measured) -> Measured:
        """With rows: of a part of the model, where there is one and the whole model's rows do not say otherwise."""
        sites = glance_sites(self.switch_points, self.n_ctx)
        with contextlib.ExitStack() as stack:
            if part := self._opener.open_part(measured.setting, opened.driver.deadline, stack):
                rows = compare(part, as_steps_of(part.driver, measured.costs), sites, self.widths)
                if not contradicted(rows, measured.timed):
                    return replace(measured, rows=rows, of_part=True)
                self.notes.append(f"{measured.setting.title}: a part of the model shows less than all of it")
        return replace(measured, rows=compare(opened, measured.costs, sites, self.widths))

    def _divergence(self, engine: str, driver: ProbeDriver) -> float | None:
        """How far the engine's rows are from libllama's: None for libllama itself, and where it is not there."""
        if self._stock_rows is None or self._apart.get(engine, 0.0) is not None:
            return self._apart.get(engine)
        self._progress(f"comparing the rows of {engine} with libllama's")
        found = self._apart[engine] = self._stock_rows.divergence_of(driver)
        driver.forget()
        if self._task.known and self._stock_rows.complete:
            self._task.known.diverges(engine, found)
        return found

    def _is_perfect(self, measured: Measured) -> bool:
        """Every width alike, and neither steps nor prompts slower than stock's: nothing is left to look for."""
        tried = tuple(next(iter(measured.rows.values()), ()))
        found = [offer for offer in offers(measured, self.stock, ()) if offer.lane.widths == tried]
        return bool(found) and affordable(found[0], measured)
