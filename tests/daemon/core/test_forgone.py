"""A block that was followed: what it would have won is credit, to the token."""

from __future__ import annotations

import pytest

from pilotfish.daemon.core.forgone import Forgone

WINS = (-4.0, -2.0, 1.0, 3.0)  # seconds, with 0, 1, 2 and 3 right tokens


@pytest.mark.parametrize(
    ("committed", "credit"),
    [
        ([[1, 2, 3]], 3.0),
        ([[1], [2], [3]], 3.0),
        ([[1], [2], [9]], 1.0),
        ([[1], [2]], 0.0),  # not decided yet
        ([[9]], 0.0),  # would have lost
        ([[1, 2, 3, 1, 2, 3]], 3.0),  # followed once
    ],
)
def test_what_it_would_have_won(committed, credit):
    forgone = Forgone()
    forgone.follow((1, 2, 3), WINS, 9.0)
    for tokens in committed:
        forgone.committed(tokens)
    assert forgone.credit == credit
    assert forgone.following is (committed == [[1], [2]])


def test_what_a_block_would_have_lost_is_taken_off():
    forgone = Forgone()
    for committed in ([1, 2, 3], [7]):
        forgone.follow((1, 2, 3), WINS, 9.0)
        forgone.committed(committed)
    assert forgone.credit == 0.0


def test_there_is_never_more_credit_than_a_block_can_lose():
    forgone = Forgone()
    for _ in range(5):
        forgone.follow((1, 2, 3), WINS, 4.0)
        forgone.committed([1, 2, 3])
    assert forgone.credit == 4.0
    forgone.spend(3.0)
    assert forgone.credit == 1.0
    forgone.spend(3.0)
    assert forgone.credit == 0.0
