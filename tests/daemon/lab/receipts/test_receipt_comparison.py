"""Two receipts side by side."""

from __future__ import annotations

from dataclasses import replace

from pilotfish.daemon.lab.receipts.receipt_comparison import compare_receipts
from pilotfish.daemon.lab.receipts.redaction import redacted
from tests.daemon.lab.receipts.receipts import a_receipt, a_round


def test_a_run_is_like_itself():
    found = compare_receipts(a_receipt(), a_receipt())
    assert (found.differences, found.other, found.same, found.unknown) == ((), (), 2, 1)
    assert [rate.ratio for rate in found.rates] == [1.0, 1.0]


def test_what_differs_is_named():
    first = a_receipt()
    settings = replace(first.settings, lane=replace(first.settings.lane, widths=(1, 2)))
    trials = tuple(
        replace(trial, output_ids=(7, 11), rounds=(a_round(committed=(7, 11)),)) if trial.drafter == "suffix" else trial
        for trial in first.trials
    )
    found = compare_receipts(first, replace(first, settings=settings, trials=trials))
    assert found.differences == (("settings.lane.widths", "[1, 2, 3]", "[1, 2]"),)
    assert ("suffix-2-quote-1", 1) in found.other


def test_ids_that_were_left_out_are_unknown_not_equal():
    found = compare_receipts(a_receipt(), redacted(a_receipt()))
    assert (found.same, found.other, found.unknown) == (0, (), 3)
