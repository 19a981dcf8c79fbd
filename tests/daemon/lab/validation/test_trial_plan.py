"""What is asked, in which order, and what it costs."""

from __future__ import annotations

import pytest

from pilotfish.daemon.lab.receipts.receipt_folder import NAME
from pilotfish.daemon.lab.receipts.receipt_types import TrialKind
from pilotfish.daemon.lab.validation.trial_plan import BASELINE_FIRST, TrialPlan, lengths_of
from pilotfish.hooks.errors import UsageError


def a_plan(**more):
    given = {"drafters": {"suffix": {}}, "lengths": ("2", "8"), "repeats": 2, "tokens": 64}
    return TrialPlan(("a", "b"), **{**given, **more})


def test_interleaved_begins_with_the_plain_answers_and_then_turns_round():
    order = [(t.kind, t.prompt, t.length, t.repeat) for t in a_plan().trials()][1:]
    assert order[:3] == [
        (TrialKind.PLAIN, "a", "", 1),
        (TrialKind.DRAFT, "a", "2", 1),
        (TrialKind.DRAFT, "a", "8", 1),
    ]
    assert order[-1] == (TrialKind.PLAIN, "b", "", 2)


def test_baseline_first_asks_all_plain_answers_before_any_draft():
    kinds = [trial.kind for trial in a_plan(order=BASELINE_FIRST).trials()][1:]
    assert kinds == [TrialKind.PLAIN] * 4 + [TrialKind.DRAFT] * 8


def test_lengths_that_the_lane_cuts_to_one_are_tried_once():
    plan = a_plan(lengths=("2", "4", "8", "auto"))
    assert plan.lengths_within(3) == ("2", "3", "auto")
    assert plan.lengths_within(0) == ()
    assert plan.oracle_length(3) == 3


def test_every_trial_has_a_name_of_its_own_that_can_be_a_file():
    trials = a_plan(oracle_cases=True, controls=2).trials()
    names = [trial.name(number) for number, trial in enumerate(trials)]
    assert len(set(names)) == len(names)
    assert all(NAME.fullmatch(name) for name in names)


def test_the_cost_counts_every_answer():
    plan = a_plan(oracle_cases=True, controls=2)
    assert plan.cost().startswith(f"{len(plan.trials())} answers (1 cold, 4 plain, 8 draft, 14 oracle, 10 control)")


@pytest.mark.parametrize("text", ["", "2,x", "0", "64", "2,,4"])
def test_what_is_no_list_of_lengths_is_refused(text):
    with pytest.raises(UsageError, match="no list of lengths"):
        lengths_of(text)


def test_a_list_of_lengths():
    assert lengths_of("2, 4,auto,2") == ("2", "4", "auto")
