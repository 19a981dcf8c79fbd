"""What a drafter says of itself: where it computes, and in which ids it speaks."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks import HistoryDrafter, Placement
from pilotfish.hooks.declared import placement_of, vocabulary_of
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.types import TokenizerPin


def saying(**attributes: Any) -> HistoryDrafter:
    return type("Mine", (HistoryDrafter,), attributes)()


def test_a_drafter_that_says_nothing_has_a_thread_of_its_own() -> None:
    assert placement_of(saying()) is Placement.THREAD


@pytest.mark.parametrize("placement", list(Placement))
def test_what_it_says_is_taken(placement: Placement) -> None:
    assert placement_of(saying(placement=placement)) is placement


@pytest.mark.parametrize("placement", ["inline", None, True, Placement])
def test_what_is_no_placement_is_refused_with_those_that_there_are(placement: object) -> None:
    with pytest.raises(
        ProtocolViolation, match=r"its `placement` is .*say one of Placement.INLINE, .*Placement.REMOTE"
    ):
        placement_of(saying(placement=placement))


@pytest.mark.parametrize(
    ("before", "placement"),
    [
        ("inline", Placement.INLINE),
        ("engine_thread", Placement.ENGINE_THREAD),
        ("hosted", Placement.PROCESS),
        ("elsewhere", Placement.REMOTE),
    ],
)
class TestWhatThePredecessorAskedFor:
    def test_is_refused_with_the_placement_that_it_means(self, before: str, placement: Placement) -> None:
        with pytest.raises(
            ProtocolViolation, match=f"`{before}` is not read any more; say placement = Placement.{placement.name}$"
        ):
            placement_of(saying(**{before: True}))

    def test_may_stay_beside_that_placement(self, before: str, placement: Placement) -> None:
        assert placement_of(saying(**{before: True}, placement=placement)) is placement

    def test_says_nothing_when_it_is_false(self, before: str, placement: Placement) -> None:
        assert placement_of(saying(**{before: False})) is Placement.THREAD


def test_a_drafter_without_a_vocabulary_or_before_it_is_loaded_speaks_the_targets_ids() -> None:
    assert vocabulary_of(saying()) is None
    assert vocabulary_of(saying(vocabulary=None)) is None


def test_a_drafter_with_a_vocabulary_speaks_that() -> None:
    own = FakeVocabulary(TokenizerPin("own", "fake", 32))
    assert vocabulary_of(saying(vocabulary=own)) is own
