"""From a trial of a receipt to the two forwards that are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.certify.reproductions import PastRound
from pilotfish.daemon.lab.diagnose.failing_trial import reproduction_of
from pilotfish.daemon.lab.receipts.receipt_types import TrialVerdict
from pilotfish.daemon.lab.receipts.redaction import redacted
from pilotfish.hooks.errors import UsageError
from tests.daemon.lab.receipts.receipts import a_receipt, a_round, a_trial

ROUNDS = (
    a_round(12, (7, 8), 1, (7, 9), width=3),
    a_round(14, (20, 21, 22), 3, (20, 21, 22, 23), width=4),
    a_round(18, (), 0, (30,), "", 1),
)


def failing(differs_at, **more):
    return a_trial("bad", rounds=ROUNDS, verdict=TrialVerdict.DIFFERENT, differs_at=differs_at, **more)


def test_the_round_that_gave_the_first_other_id_is_compared_with_a_plain_step():
    receipt = a_receipt()
    receipt = replace(receipt, settings=replace(receipt.settings, gpu_layers=7))
    asked = reproduction_of(receipt, failing(4))  # 22, the third of the second round
    assert asked.prefix == (*range(3, 15), 7, 9, 20, 21)
    assert (asked.plain.width, asked.other.width) == (1, 4)
    assert asked.plain.setting == asked.other.setting == receipt.settings.lane.setting
    assert asked.following == (22,)
    assert asked.rounds == (PastRound(3, (7, 8), 2), PastRound(4, (20, 21, 22), 2))
    assert (asked.prompt, asked.lane, asked.n_ctx, asked.threads, asked.gpu_layers) == (12, (1, 2, 3), 1024, 2, 7)
    assert asked.weights == ("sha256:" + "a" * 64,)


def test_at_the_beginning_of_a_round_all_its_proposals_follow():
    asked = reproduction_of(a_receipt(), failing(2))
    assert (asked.following, asked.rounds) == ((20, 21, 22), (PastRound(3, (7, 8), 2),))


def test_a_plain_step_that_differs_is_blamed_on_a_wider_forward_before_it():
    asked = reproduction_of(a_receipt(), failing(6))
    assert (asked.other.width, asked.following, len(asked.rounds)) == (4, (), 2)


def test_a_trial_that_is_equal_or_has_no_ids_is_refused():
    receipt = a_receipt()
    with pytest.raises(UsageError, match="no id of it differs"):
        reproduction_of(receipt, receipt.trials[1])
    hidden = redacted(replace(receipt, trials=(failing(4),)))
    with pytest.raises(UsageError, match="left out"):
        reproduction_of(hidden, hidden.trials[0])
