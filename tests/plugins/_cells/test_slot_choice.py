"""Which slot a prompt gets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.slot_choice import choose

PROMPT = list(range(100))


def holding(*contents: Sequence[int]) -> dict[int, CellHistory]:
    """Free slots that hold these ids, in the order in which they were last used."""
    found = {}
    for number, ids in enumerate(contents):
        found[number] = CellHistory(64, any_prefix=True)
        found[number].add(ids)
    return found


@pytest.mark.parametrize(
    ("contents", "similarity", "chosen"),
    [
        (([], []), 0.1, 0),  # nothing is like it: the one that rested longest
        (([], PROMPT[:50]), 0.1, 1),
        ((PROMPT[:40], PROMPT[:50]), 0.1, 1),
        ((PROMPT[:50], PROMPT[:50]), 0.1, 0),
        (([7, 8], PROMPT[:11]), 0.1, 1),
        (([7, 8], PROMPT[:10]), 0.1, 0),  # no more than its share
        (([7, 8], PROMPT[:90]), 0.0, 0),  # not to be looked at
        (([7, 8], PROMPT), 1.0, 0),
        (([7, 8], [*PROMPT[:30], 900, 901]), 0.25, 1),  # what comes after the beginning does not count
    ],
)
def test_it_is_the_one_that_holds_the_most_or_has_rested_longest(contents, similarity, chosen):
    assert choose(holding(*contents), PROMPT, similarity) == chosen


def test_the_order_in_which_they_rested_is_the_order_they_come_in():
    free = holding([], [], [])
    assert choose({number: free[number] for number in (2, 0, 1)}, PROMPT, 0.1) == 2
