"""`certify`: find the engine and the lane in which speculation cannot change a token, and what they cost, in a budget.

1. *Survey*: libllama's stock settings are measured first: they reveal the kernel switch points, what a plain step
   costs, and which rows stock gives. Then one candidate setting after the other, each in a process of its own and
   every engine in its turn, gets a glance at every width at every site, and its forwards are timed in turns with
   stock's. See `certify.survey`.
2. *Evidence*: the setting with the lowest expected time per token, whichever engine computes in it, is loaded again and
   compared in earnest; see `certify.evidence`. Should it fall, the next best gets its turn.

`open_probe(setting, deadline)` opens a probe; the command and the idle certifier pass `RemoteProbe`, tests a
scripted one.
"""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import replace

from pilotfish.daemon.certify.candidates import stock_setting
from pilotfish.daemon.certify.certificate import Certificate
from pilotfish.daemon.certify.evidence import Evidence
from pilotfish.daemon.certify.lanes import (
    Measured,
    Offer,
    affordable,
    company_ratio,
    offers,
    pays,
    plain_ratio,
    ranges,
    ranked,
    reference,
)
from pilotfish.daemon.certify.opening import Opener
from pilotfish.daemon.certify.probe_driver import Deadline, OutOfTime, ProbeDriver
from pilotfish.daemon.certify.survey import Survey
from pilotfish.daemon.certify.task import CertificationTask, OpenProbe, Progress, silent
from pilotfish.daemon.certify.variants import described
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import Lane, Parity

BUDGET = 120.0  # seconds
_DEAR = "copying the state before a block, and computing again after a rejection, would take what drafts save"
SURVEY_SHARE = 0.6  # of the budget; the rest is for the evidence


class Certifier:
    """One certification. `run` never raises for a model that cannot speculate: then the lane is plain."""

    def __init__(
        self,
        task: CertificationTask,
        open_probe: OpenProbe,
        *,
        budget: float = BUDGET,
        deadline: Deadline | None = None,
        progress: Progress = silent,
    ) -> None:
        self._task = task
        self._deadline = deadline or Deadline(budget)
        self._budget = budget
        self._progress = progress
        self._opener = Opener(task, open_probe, progress)
        survey_ends = self._deadline.sooner(SURVEY_SHARE * budget)
        self._survey = Survey(task, self._opener, survey_ends, budget, progress)
        self._evidence: Evidence | None = None
        self._notes: list[str] = []

    def run(self) -> Certificate:
        """Certify. Raises EngineError or BrokenModel when no engine loads the model in stock settings."""
        self._survey.run()
        self._notes += self._survey.notes
        return self._certificate(self._collect_evidence())

    def _collect_evidence(self) -> Offer | None:
        """The best lane that survives a second look; None when none does."""
        for offer, measured in self._ranked():
            with contextlib.ExitStack() as stack:
                try:
                    whole = self._opener.open(measured.setting, self._deadline, stack).driver
                    part = self._part(measured, stack)
                    self._progress(f"collecting evidence: widths {ranges(offer.lane.widths)}, {offer.lane.name}")
                    points = self._survey.switch_points
                    evidence = Evidence(part or whole, offer.lane, measured, points, whole if part else None)
                    evidence.collect()
                except OutOfTime:
                    self._notes.append("time ran out before there was any evidence")
                    return None
                except PilotfishError as error:
                    self._notes.append(f"{offer.lane.name}: {error}")
                    continue
            self._evidence = evidence
            if evidence.lane.max_width > 1 and len(evidence.lane.widths) > 1:
                return replace(offer, lane=evidence.lane)
            self._notes += evidence.findings
        return None

    def _part(self, measured: Measured, stack: contextlib.ExitStack) -> ProbeDriver | None:
        """The part of the model that told its rows, to tell more of them."""
        part = self._opener.open_part(measured.setting, self._deadline, stack) if measured.of_part else None
        if part is None:
            return None
        if self._task.part not in self._notes:
            self._notes.append(self._task.part)
        return part.driver

    def _found(self) -> list[tuple[Offer, Measured]]:
        """Every lane that the survey offers."""
        survey = self._survey
        return [(o, m) for m in survey.measured for o in offers(m, survey.stock, survey.switch_points)]

    def _ranked(self) -> list[tuple[Offer, Measured]]:
        """The lanes that cost nothing while nothing is drafted, the cheapest first."""
        wanted = self._task.identity.parity
        by_lane = {
            offer.lane: (offer, measured)
            for offer, measured in self._found()
            if affordable(offer, measured) and (wanted is not Parity.STOCK or offer.lane.parity is Parity.STOCK)
        }
        return [by_lane[offer.lane] for offer in ranked([offer for offer, _ in by_lane.values()])]

    def _certificate(self, offer: Offer | None) -> Certificate:
        survey = self._survey
        lane = replace(offer.lane, reason=self._reason()) if offer else self._plain()
        measured = next((m for m in reversed(survey.measured) if offer and m.setting == lane.setting), None)
        evidence = self._evidence if offer else None
        costs = measured.costs if measured else survey.stock.costs if survey.measured else {}
        return Certificate(
            identity=self._task.identity,
            model=self._task.model,
            architecture=self._task.architecture,
            quantization=self._task.quantization,
            size=self._task.size,
            engine=self._opener.versions.get(lane.setting.engine, ""),
            reference=survey.reference,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            n_ctx=survey.n_ctx,
            lane=lane,
            plain_ratio=round(plain_ratio(lane, measured), 3) if measured else 1.0,
            prompt_ratio=round(measured.prompt_ratio, 3) if measured else 1.0,
            expected_ratio=round(offer.ratio, 3) if offer else 1.0,
            switch_points=survey.switch_points,
            costs=tuple((width, at, round(seconds, 6)) for (width, at), seconds in costs.items()),
            regimes=tuple(r.to_json(lane.widths[1:]) for r in evidence.regimes) if evidence else (),
            variants=described(survey, lane),
            findings=(*self._notes, *(evidence.findings if evidence else ())),
            seconds=round(self._budget - self._deadline.left, 1),
            unmeasured=survey.unmeasured if len(self._task.engines) > 1 else (),
            complete=bool(evidence and evidence.complete),
            conclusive=lane.max_width > 1 or not self._out_of_time(),
        )

    def _out_of_time(self) -> bool:
        return self._deadline.left <= 0 or any("time ran out" in note for note in self._notes)

    def _reason(self) -> str:
        return "; ".join(self._evidence.findings) if self._evidence else ""

    def _plain(self) -> Lane:
        setting = stock_setting(self._task.options, self._survey.reference)
        reason = next((m.trouble for m in self._survey.measured[:1] if m.trouble), "") or self._why_plain()
        return Lane(setting.title, (1,), setting, parity=Parity.NONE, reason=reason)

    def _why_plain(self) -> str:
        found = self._found()
        refused = [(offer, measured) for offer, measured in found if not affordable(offer, measured)]
        tried = len(self._survey.measured) > 1
        reasons = ["only single steps are alike in every setting tried"] if tried and not found else []
        if refused and self._evidence is None:
            offer, measured = min(refused, key=lambda pair: plain_ratio(pair[0].lane, pair[1]))
            if not pays(offer.lane, measured):
                return "; ".join([*reasons, f"widths {ranges(offer.lane.widths)} are alike, but {_DEAR}", *self._notes])
            ratio, slots = plain_ratio(offer.lane, measured), self._task.options.slots
            figures = f"{ratio:.2f}x {reference(self._survey.reference)}, prompts {measured.prompt_ratio:.2f}x"
            if slots > 1:
                figures += f", {slots} requests at once {company_ratio(offer.lane, measured):.2f}x"
            reasons.append(f"widths {ranges(offer.lane.widths)} are alike, but plain steps would take {figures}")
        return "; ".join([*reasons, *self._notes])
