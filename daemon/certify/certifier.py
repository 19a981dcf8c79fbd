"""`certify`: find the lane in which speculation cannot change a token, and what it costs, within a time budget.

1. *Stock* settings are measured first: they reveal the kernel switch points, the context lengths at which the engine
   changes its code, what a plain step costs, and which rows stock gives.
2. *Survey*: one candidate setting after the other, each in a process of its own, gets a glance at every width at
   every site, and its forwards are timed in turns with stock's. The survey ends with the first setting whose widths
   are all alike at stock's speed.
3. *Evidence*: the setting with the lowest expected time per token is loaded again and compared in earnest; see
   `certify.evidence`. Should it fall, the next best gets its turn.

`open_probe(setting, deadline)` opens a probe; the command and the idle certifier pass `RemoteProbe`, tests a
scripted one.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.certify.candidates import candidates, stock_setting
from pilotfish.daemon.certify.certificate import Certificate, Identity
from pilotfish.daemon.certify.evidence import Evidence
from pilotfish.daemon.certify.lanes import (
    ALL_WIDTHS,
    Measured,
    Offer,
    Rows,
    Site,
    affordable,
    classes,
    offers,
    plain_ratio,
    ranges,
    ranked,
    reference,
)
from pilotfish.daemon.certify.measure import (
    COST_WIDTHS,
    GLANCE_LEAST,
    cost_positions,
    fastest,
    find_switch_points,
    glance,
    glance_sites,
    noise,
    time_costs,
    time_prefill,
    widths_within,
)
from pilotfish.daemon.certify.probe_driver import Deadline, Material, OutOfTime, ProbeDriver
from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.protocols import Probe
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, Parity

log = logging.getLogger("pilotfish.certifier")

BUDGET = 60.0  # seconds
SURVEY_SHARE = 0.6  # of the budget; the rest is for the evidence
SWITCH_POINTS_SHARE = 0.06  # of the budget, for contexts that double while nothing is known about them

CANDIDATE_SHARE = 0.5  # of the survey's time that is left, for the glances at one candidate
OUT_OF_TIME = "time ran out before every setting was tried"

OpenProbe = Callable[[EngineSetting, Deadline], Probe]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CertificationTask:
    """What to certify. `text` is natural text to compare rows on, besides random ids."""

    identity: Identity
    model: str
    options: EngineOptions
    engine: str = "llama"  # the registry name of the verifier
    text: str = ""
    keep_stock: bool = True  # memory has room for the model twice, so that costs can be taken in turns


class Certifier:
    """One certification. `run` never raises for a model that cannot speculate: then the lane is plain."""

    def __init__(
        self,
        task: CertificationTask,
        open_probe: OpenProbe,
        *,
        budget: float = BUDGET,
        deadline: Deadline | None = None,
        progress: Progress = lambda what: None,
    ) -> None:
        self._task = task
        self._stock_setting = stock_setting(task.options, task.engine)
        self._open_probe = open_probe
        self._deadline = deadline or Deadline(budget)
        self._budget = budget
        self._survey_ends = self._deadline.sooner(SURVEY_SHARE * budget)
        self._progress = progress
        self._measured: list[Measured] = []
        self._switch_points: tuple[int, ...] = ()
        self._widths = ALL_WIDTHS  # that are tried
        self._text: list[int] = []
        self._engine = ""
        self._n_ctx = task.options.n_ctx
        self._evidence: Evidence | None = None
        self._notes: list[str] = []

    def run(self) -> Certificate:
        """Certify. Raises EngineError or BrokenModel when not even stock settings load."""
        offer: Offer | None = None
        with contextlib.ExitStack() as stack:
            try:
                self._survey(stack)
            except OutOfTime:
                self._notes.append(OUT_OF_TIME)
        if self._measured and not self._measured[0].trouble:
            offer = self._collect_evidence()
        return self._certificate(offer)

    def _survey(self, stack: contextlib.ExitStack) -> None:
        stock = self._open(self._stock_setting, self._survey_ends, stack)
        self._engine, self._n_ctx = stock.probe.engine.version, stock.probe.n_ctx
        if stock.probe.obstacle:
            self._measured.append(Measured(self._stock_setting, trouble=stock.probe.obstacle))
            return
        self._progress("looking for the context lengths at which the engine changes its code")
        self._switch_points = find_switch_points(stock, self._n_ctx, SWITCH_POINTS_SHARE * self._budget)
        stock.forget()
        self._progress("measuring stock settings")
        self._measured.append(self._measure_stock(stock))
        self._choose_widths(self._measured[0])
        if self._task.identity.parity is Parity.STOCK:
            return
        kept: ProbeDriver | None = stock
        if not self._task.keep_stock:
            stock.probe.close()
            kept = None
        self._survey_candidates(kept)

    def _choose_widths(self, stock: Measured) -> None:
        """Fewer widths for a model, or a machine, that is too slow for all of them."""
        step = stock.noise * max(seconds for (width, _), seconds in stock.costs.items() if width == 1)
        wanted = (
            ALL_WIDTHS
            if self._task.identity.parity is Parity.STOCK
            else widths_within(CANDIDATE_SHARE * self._survey_ends.left, step, len(stock.rows))
        )
        if wanted[-1] < ALL_WIDTHS[-1]:
            self._widths = tuple(width for width in ALL_WIDTHS if width <= wanted[-1])
            self._notes.append(f"only widths up to {wanted[-1]} were tried: more would not fit the time")

    def _survey_candidates(self, stock: ProbeDriver | None) -> None:
        pending = candidates(self._task.options, self._task.engine, weights_first=True)
        while pending:
            setting = pending.pop(0)
            measured = self._try(setting, stock)
            self._measured.append(measured)
            self._seen(measured)
            if self._is_perfect(measured):
                return
            if len(self._measured) == 2 and measured.rows:
                first = next(iter(measured.rows.values()))
                pending = candidates(self._task.options, self._task.engine, weights_first=len(classes(first)) > 1)[1:]

    def _open(self, setting: EngineSetting, deadline: Deadline, stack: contextlib.ExitStack) -> ProbeDriver:
        self._progress(f"loading: {setting.title}")
        deadline.check()
        probe = self._open_probe(setting, deadline)
        stack.callback(probe.close)
        if not self._text:
            self._text = probe.encode(self._task.text)
        return ProbeDriver(probe, Material(probe.n_vocab, self._text), deadline, self._task.options.batch_size)

    def _measure_stock(self, driver: ProbeDriver) -> Measured:
        """All of it only where its own lane is wanted; otherwise what the candidates are compared with."""
        own = self._task.identity.parity is Parity.STOCK
        sites = glance_sites(self._switch_points, self._n_ctx)
        rows: dict[Site, Rows] = {
            site: glance(driver, site, ALL_WIDTHS) if own else {1: tuple(driver.walk(site, 1, GLANCE_LEAST))}
            for site in sites
        }
        samples = time_costs([(driver, COST_WIDTHS if own else (1,))], cost_positions(self._n_ctx))[0]
        # Candidates are timed in turns with stock, prompts too, wherever both fit in memory.
        prefill = time_prefill([driver], self._n_ctx)[0] if own or not self._task.keep_stock else 0.0
        costs = fastest(samples)
        return Measured(self._stock_setting, rows, costs, prefill, costs, prefill, noise(samples))

    def _seen(self, measured: Measured) -> None:
        offered = [f"{ranges(o.lane.widths)} at {o.ratio:.2f}" for o in offers(measured, self._measured[0], ())]
        log.info("%s: %s", measured.setting.title, measured.trouble or "; ".join(offered) or "no lane")

    def _try(self, setting: EngineSetting, stock: ProbeDriver | None) -> Measured:
        with contextlib.ExitStack() as stack:
            try:
                driver = self._open(setting, self._survey_ends, stack)
                return self._measure(driver, setting, stock)
            except PilotfishError as error:
                return Measured(setting, trouble=f"refused: {error}")

    def _measure(self, driver: ProbeDriver, setting: EngineSetting, stock: ProbeDriver | None) -> Measured:
        self._progress(f"comparing widths: {setting.title}")
        sites = glance_sites(self._switch_points, self._n_ctx)
        rows = {site: glance(driver, site, self._widths) for site in sites}
        timed = tuple(width for width in COST_WIDTHS if width <= self._widths[-1])
        self._progress(f"timing: {setting.title}")
        positions = cost_positions(self._n_ctx)
        if stock is None:
            first = self._measured[0]
            samples, prefill = time_costs([(driver, timed)], positions)[0], time_prefill([driver], self._n_ctx)[0]
            return Measured(setting, rows, fastest(samples), prefill, first.costs, first.prefill, first.noise)
        own, stocks = time_costs([(driver, timed), (stock, (1,))], positions)
        prefill, stock_prefill = time_prefill([driver, stock], self._n_ctx)
        return Measured(setting, rows, fastest(own), prefill, fastest(stocks), stock_prefill, noise(stocks))

    def _is_perfect(self, measured: Measured) -> bool:
        """Every width alike, and neither steps nor prompts slower than stock's: nothing is left to look for."""
        found = [offer for offer in offers(measured, self._measured[0], ()) if offer.lane.widths == self._widths]
        return bool(found) and affordable(found[0], measured)

    def _collect_evidence(self) -> Offer | None:
        """The best lane that survives a second look; None when none does."""
        for offer, measured in self._ranked():
            with contextlib.ExitStack() as stack:
                try:
                    driver = self._open(measured.setting, self._deadline, stack)
                    self._progress(f"collecting evidence: widths {ranges(offer.lane.widths)}, {offer.lane.name}")
                    evidence = Evidence(driver, offer.lane, measured, self._switch_points)
                    evidence.collect()
                except OutOfTime:
                    self._notes.append("time ran out before there was any evidence")
                    return None
                except EngineError as error:
                    self._notes.append(f"{offer.lane.name}: {error}")
                    continue
            self._evidence = evidence
            if evidence.lane.max_width > 1 and len(evidence.lane.widths) > 1:
                return replace(offer, lane=evidence.lane)
            self._notes += evidence.findings
        return None

    def _ranked(self) -> list[tuple[Offer, Measured]]:
        stock, wanted = self._measured[0], self._task.identity.parity
        by_lane = {
            offer.lane: (offer, measured)
            for measured in self._measured
            for offer in offers(measured, stock, self._switch_points)
            if affordable(offer, measured) and (wanted is not Parity.STOCK or offer.lane.parity is Parity.STOCK)
        }
        return [by_lane[offer.lane] for offer in ranked([offer for offer, _ in by_lane.values()])]

    def _certificate(self, offer: Offer | None) -> Certificate:
        lane = self._explained(offer.lane) if offer else self._plain()
        measured = next((m for m in reversed(self._measured) if offer and m.setting == lane.setting), None)
        evidence = self._evidence if offer else None
        costs = measured.costs if measured else self._measured[0].costs if self._measured else {}
        return Certificate(
            identity=self._task.identity,
            model=self._task.model,
            engine=self._engine,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            n_ctx=self._n_ctx,
            lane=lane,
            plain_ratio=round(plain_ratio(lane, measured), 3) if measured else 1.0,
            prompt_ratio=round(measured.prompt_ratio, 3) if measured else 1.0,
            expected_ratio=round(offer.ratio, 3) if offer else 1.0,
            switch_points=self._switch_points,
            costs=tuple((width, at, round(seconds, 6)) for (width, at), seconds in costs.items()),
            regimes=tuple(r.to_json(lane.widths[1:]) for r in evidence.regimes) if evidence else (),
            variants=tuple(self._describe(m) for m in self._measured),
            findings=(*self._notes, *(evidence.findings if evidence else ())),
            seconds=round(self._budget - self._deadline.left, 1),
            complete=bool(evidence and evidence.complete),
            conclusive=lane.max_width > 1 or not self._out_of_time(),
        )

    def _out_of_time(self) -> bool:
        return self._deadline.left <= 0 or any("time ran out" in note for note in self._notes)

    def _explained(self, lane: Lane) -> Lane:
        reason = "; ".join(self._evidence.findings) if self._evidence else ""
        return replace(lane, reason=reason)

    def _plain(self) -> Lane:
        reason = next((m.trouble for m in self._measured[:1] if m.trouble), "") or self._why_plain()
        return Lane(self._stock_setting.title, (1,), self._stock_setting, parity=Parity.NONE, reason=reason)

    def _why_plain(self) -> str:
        found = [(o, m) for m in self._measured for o in offers(m, self._measured[0], self._switch_points)]
        refused = [(offer, measured) for offer, measured in found if not affordable(offer, measured)]
        tried = len(self._measured) > 1
        reasons = ["only single steps are alike in every setting tried"] if tried and not found else []
        if refused and self._evidence is None:
            offer, measured = min(refused, key=lambda pair: plain_ratio(pair[0].lane, pair[1]))
            ratio = plain_ratio(offer.lane, measured)
            figures = f"{ratio:.2f}x {reference(self._task.engine)}, prompts {measured.prompt_ratio:.2f}x"
            reasons.append(f"widths {ranges(offer.lane.widths)} are alike, but plain steps would take {figures}")
        return "; ".join([*reasons, *self._notes])

    def _describe(self, measured: Measured) -> dict[str, Any]:
        """For people: what was seen in one setting."""
        stock = self._measured[0]
        by_start = {str(site.start): [ranges(c) for c in classes(rows)] for site, rows in measured.rows.items()}
        lanes = [
            {
                "widths": ranges(offer.lane.widths),
                "max_context": offer.lane.max_context,
                "parity": offer.lane.parity,
                "expected_ratio": round(offer.ratio, 3),
                "plain_ratio": round(plain_ratio(offer.lane, measured), 3),
            }
            for offer in offers(measured, stock, self._switch_points)
        ]
        figures = {f"{width}@{at}": round(1000 * seconds, 2) for (width, at), seconds in measured.costs.items()}
        stock_figures = {f"{w}@{at}": round(1000 * seconds, 2) for (w, at), seconds in measured.stock_costs.items()}
        return {
            "setting": measured.setting.title,
            "trouble": measured.trouble,
            "classes": by_start,
            "lanes": lanes,
            "ms": figures,
            "stock_ms": stock_figures,
            "prefill_tokens_per_second": round(1 / measured.prefill, 1) if measured.prefill else 0.0,
            "stock_prefill_tokens_per_second": round(1 / measured.stock_prefill, 1) if measured.stock_prefill else 0.0,
        }
