from __future__ import annotations

from typing import Any

import pytest

from pilotfish.hooks.errors import ConfigError
from pilotfish.hooks.protocols import Drafter, DraftSession
from pilotfish.hooks.types import EMPTY, Placement
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters.oracle import OracleDrafter

PROMPT = [3, 4]
OUTPUT = [10, 11, 12, 13, 14, 15, 16, 17]


class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self) -> Drafter:
        return OracleDrafter({"tokens": OUTPUT, "wrong_every": 3})


def session(**config: Any) -> DraftSession:
    return OracleDrafter({"tokens": OUTPUT, **config}).open(fake_pin(), PROMPT)


def test_it_proposes_the_recording_from_where_the_history_stands() -> None:
    oracle = session()
    assert oracle.propose(3).tokens == (10, 11, 12)
    oracle.commit([10, 11])
    assert oracle.propose(3).tokens == (12, 13, 14)
    oracle.commit([12, 13, 14, 15, 16])
    assert oracle.propose(3).tokens == (17,)
    oracle.commit([17])
    assert oracle.propose(3) == EMPTY


def test_it_is_wrong_at_the_positions_asked_for_and_right_after_them() -> None:
    oracle = session(wrong_at=[1, 5])
    assert oracle.propose(8).tokens == (10, 12, 12, 13, 14, 16, 16, 17)
    oracle.commit([10, 11])
    assert oracle.propose(4).tokens == (12, 13, 14, 16)


def test_it_is_wrong_at_every_nth_token() -> None:
    proposed = session(wrong_every=3).propose(8).tokens
    assert [i for i, (a, b) in enumerate(zip(proposed, OUTPUT, strict=True)) if a != b] == [2, 5]


def test_a_wrong_id_is_still_one_of_the_vocabulary() -> None:
    oracle = OracleDrafter({"tokens": [31], "wrong_at": [0]}).open(fake_pin(n_vocab=32), PROMPT)
    assert oracle.propose(1).tokens == (0,)


@pytest.mark.parametrize("committed", [[99], [10, 99], [*OUTPUT, 18]])
def test_it_says_nothing_more_once_the_history_differs_from_the_recording(committed: list[int]) -> None:
    oracle = session()
    oracle.commit(committed)
    assert oracle.propose(4) == EMPTY
    oracle.commit([12])
    assert oracle.propose(4) == EMPTY


def test_a_rollback_leaves_it_where_it_was() -> None:
    oracle = session()
    oracle.propose(4)
    oracle.rollback()
    assert oracle.propose(2).tokens == (10, 11)


def test_a_slow_oracle_asks_for_a_thread_of_its_own() -> None:
    assert OracleDrafter({"tokens": OUTPUT}).placement is Placement.INLINE
    slow = OracleDrafter({"tokens": OUTPUT, "delay_ms": 0.5})
    assert slow.placement is Placement.THREAD
    assert slow.open(fake_pin(), PROMPT).propose(1).tokens == (10,)


@pytest.mark.parametrize(
    ("key", "value"),
    [("tokens", "abc"), ("tokens", [1, -2]), ("wrong_at", [1.5]), ("wrong_every", -1), ("delay_ms", "fast")],
)
def test_a_bad_option_is_refused_by_its_path(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^drafters.oracle.{key}: expected"):
        OracleDrafter({key: value})
