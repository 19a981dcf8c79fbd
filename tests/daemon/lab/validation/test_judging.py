"""What is promoted: exact, faster by what the config asks for, and no later with its first token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import Promotion
from pilotfish.daemon.lab.receipts.receipt_types import (
    RunVerdict,
    TrialKind,
    TrialTimes,
    TrialVerdict,
)
from pilotfish.daemon.lab.validation.judging import judged
from tests.daemon.lab.receipts.receipts import a_trial


def timed(name, total, first, kind=TrialKind.DRAFT, **more):
    return replace(a_trial(name, kind, **more), tokens=100, times=TrialTimes(first, total))


def verdict(total, first, thresholds=None, *others):
    trials = [timed("p", 10.0, 1.0, TrialKind.PLAIN), timed("d", total, first), *others]
    return judged(trials, thresholds or Promotion())


@pytest.mark.parametrize(
    ("total", "first", "expected", "reason"),
    [
        (8.5, 1.0, RunVerdict.PASSED, ""),
        (8.8, 1.0, RunVerdict.NOT_PROMOTED, "x the plain rate, 1.15x is asked for"),
        (8.5, 1.2, RunVerdict.NOT_PROMOTED, "p95 of the first token is 1.20x the plain one, 1.10x is allowed"),
    ],
)
def test_the_thresholds_decide(total, first, expected, reason):
    found, (judgement,) = verdict(total, first)
    assert found is judgement.verdict is expected
    assert reason in "; ".join(judgement.reasons)


def test_other_thresholds_decide_otherwise():
    assert verdict(9.8, 1.4, Promotion(0.01, 0.5))[0] is RunVerdict.PASSED


@pytest.mark.parametrize("kind", [TrialKind.PLAIN, TrialKind.ORACLE, TrialKind.DRAFT])
@pytest.mark.parametrize("bad", [TrialVerdict.DIFFERENT, TrialVerdict.FAILED])
def test_one_comparison_that_failed_anywhere_fails_every_drafter(kind, bad):
    found, judgements = verdict(5.0, 1.0, None, timed("x", 9.0, 1.0, kind, verdict=bad))
    assert found is RunVerdict.FAILED
    assert {judgement.verdict for judgement in judgements} == {RunVerdict.FAILED}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(TrialVerdict.DIFFERENT, "ids differed in this run"), (TrialVerdict.FAILED, "ended with an error")],
)
def test_the_reason_says_whether_ids_differed_or_something_failed(bad, reason):
    _, (judgement,) = verdict(5.0, 1.0, None, timed("x", 9.0, 1.0, TrialKind.ORACLE, verdict=bad))
    (said,) = judgement.reasons
    assert reason in said


def test_outside_of_any_lane_nothing_passes_though_nothing_differed():
    trials = [timed("p", 10.0, 1.0, TrialKind.PLAIN), timed("d", 5.0, 1.0)]
    found, (judgement,) = judged(trials, Promotion(), unsafe_lane=True)
    assert found is judgement.verdict is RunVerdict.NOT_PROMOTED
    assert "outside of any lane" in judgement.reasons[0]


def test_a_control_is_no_comparison_of_ids():
    other = timed("c", 9.0, 1.0, TrialKind.CONTROL, verdict=TrialVerdict.DIFFERENT)
    assert verdict(5.0, 1.0, None, other)[0] is RunVerdict.PASSED


def test_a_case_that_did_not_come_up_fails_nothing():
    other = timed("o", 9.0, 1.0, TrialKind.ORACLE, verdict=TrialVerdict.NOT_REACHED)
    assert verdict(5.0, 1.0, None, other)[0] is RunVerdict.PASSED
