"""What happened is kept in order, with bounds, and told once."""

from __future__ import annotations

from pilotfish.daemon.control.decision_log import Logged
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.happenings import KEPT, Happening, Happenings, differences
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.totals import Standing, Totals


def test_the_last_thousand_are_kept_with_the_loads_that_went_to_stock_between_them():
    now = 0.0

    def clock() -> float:
        return now

    happenings = Happenings(clock)
    for now in range(KEPT + 10):
        happenings.add("loaded", "a", f"number {now}")
    decisions = [Logged(500.5, "b", "stock", "too little memory"), Logged(501.5, "b", "runner", "")]
    found = happenings.all(decisions)
    assert len(found) == KEPT
    assert found[-1].text == f"number {KEPT + 9}"
    place = found.index(Happening(500.5, "stock", "b", "too little memory"))
    assert (found[place - 1].text, found[place + 1].text) == ("number 500", "number 501")


def test_only_what_differs_between_two_reports_happened():
    before = Report(pool={"llama": {"state": "loading", "about": ""}}, totals=Totals(dropped={"suffix": "hung"}))
    after = Report(
        standing=Standing("parked", "drafts did not pay"),
        pool={"llama": {"state": "refused", "about": "no memory"}, "suffix": {"state": "ready", "about": ""}},
        totals=Totals(dropped={"suffix": "hung", "llama": "lost track"}),
    )
    assert list(differences(before, after)) == [
        ("state", "parked drafts did not pay"),
        ("drafter", "drafter llama: refused: no memory"),
        ("dropped", "drafter llama was dropped in the middle of an answer: lost track"),
    ]
    assert list(differences(after, after)) == []


def test_a_governor_tells_of_runners_and_of_the_config():
    governor, heard = Governor(), []
    governor.happenings.heard.append(lambda happening: heard.append((happening.kind, happening.model)))
    runner = governor.register(Registration(7, 4711, "a:latest", 1.5))
    governor.report(runner.id, Report(standing=Standing("off", "switched off")))
    governor.report(runner.id, Report(standing=Standing("off", "switched off")))
    governor.config_failed("broken")
    governor.config_failed("broken")
    governor.leave(runner)
    assert heard == [("loaded", "a:latest"), ("state", "a:latest"), ("config", ""), ("unloaded", "a:latest")]
