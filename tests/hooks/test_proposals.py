"""What counts as a proposal, and as how much of one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.proposals import checked
from pilotfish.hooks.types import EMPTY, Proposal
from tests.fakes.misbehaviour import JUNK, Panic

N = 256


@pytest.mark.parametrize("junk", JUNK)
def test_what_is_not_sound_is_refused(junk: object) -> None:
    with pytest.raises((ProtocolViolation, Panic, SystemExit)) as refusal:
        checked(junk, N, 4)
    if isinstance(refusal.value, ProtocolViolation):
        assert str(refusal.value).startswith("proposed ")


@given(
    st.lists(st.integers(0, N - 1), max_size=8).flatmap(
        lambda ids: st.tuples(st.just(ids), st.lists(st.floats(0, 1), max_size=len(ids)))
    )
)
def test_what_is_sound_passes_as_it_is(said: tuple[list[int], list[float]]) -> None:
    tokens, confidence = map(tuple, said)
    assert checked(Proposal(tokens, confidence), N, 8) == Proposal(tokens, confidence)


def test_nothing_is_a_proposal() -> None:
    assert checked(EMPTY, N, 0) == EMPTY
    assert checked(Proposal([], []), N) == EMPTY  # type: ignore[arg-type]


@pytest.mark.parametrize("beyond", [40_000, -1, 2**70])
def test_an_id_outside_the_vocabulary_ends_the_proposal_before_it(beyond: int) -> None:
    sound = checked(Proposal((12, 13, beyond, 14), (0.9, 0.8, 0.7, 0.6)), N, 4)
    assert sound == Proposal((12, 13), (0.9, 0.8))


def test_confidences_may_be_fewer_and_any_real_numbers() -> None:
    sound = checked(Proposal((1, 2, 3, 4, 5), (np.float32(0.5), 1, Fraction(1, 4))), N)  # type: ignore[arg-type]
    assert sound == Proposal((1, 2, 3, 4, 5), (0.5, 1.0, 0.25))
    assert {type(sure) for sure in sound.confidence} == {float}


def test_lists_become_tuples() -> None:
    assert checked(Proposal([1, 2], [0.5]), N, 2) == Proposal((1, 2), (0.5,))  # type: ignore[arg-type]
