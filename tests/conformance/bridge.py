"""What every bridge must do, whatever vocabularies it joins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.hooks.protocols import Bridge, BridgeFactory, Vocabulary
from pilotfish.hooks.types import EMPTY, Proposal


class BridgeConformance:
    """Needs fixtures `factory`, `pair` (drafter's and target's vocabulary, which it joins) and `strangers` (which not).

    `ids` are target ids that the bridge can express both ways.
    """

    @pytest.fixture
    def factory(self) -> BridgeFactory:
        raise NotImplementedError("give the suite a fixture `factory`")

    @pytest.fixture
    def pair(self) -> tuple[Vocabulary, Vocabulary]:
        raise NotImplementedError("give the suite a fixture `pair`")

    @pytest.fixture
    def strangers(self) -> tuple[Vocabulary, Vocabulary]:
        raise NotImplementedError("give the suite a fixture `strangers`")

    @pytest.fixture
    def ids(self) -> Sequence[int]:
        return [3, 1, 2]

    @pytest.fixture
    def bridge(self, factory: BridgeFactory, pair: tuple[Vocabulary, Vocabulary]) -> Bridge:
        bridge = factory(*pair)
        assert bridge is not None, "the factory refused the pair it was said to join"
        return bridge

    def test_it_is_a_bridge(self, bridge: Bridge) -> None:
        assert isinstance(bridge, Bridge)

    def test_it_leaves_other_pairs_to_other_bridges(
        self, factory: BridgeFactory, strangers: tuple[Vocabulary, Vocabulary]
    ) -> None:
        assert factory(*strangers) is None

    def test_nothing_becomes_nothing(self, bridge: Bridge) -> None:
        assert bridge.to_target(EMPTY).tokens == ()
        assert list(bridge.to_drafter([])) == []

    def test_committed_ids_reach_the_drafter_in_its_vocabulary(
        self, bridge: Bridge, pair: tuple[Vocabulary, Vocabulary], ids: Sequence[int]
    ) -> None:
        translated = bridge.to_drafter(ids)
        assert translated
        assert all(0 <= token < pair[0].pin.n_vocab for token in translated)

    def test_what_went_over_comes_back(self, bridge: Bridge, ids: Sequence[int]) -> None:
        there = tuple(bridge.to_drafter(ids))
        back = bridge.to_target(Proposal(there, (0.5,) * len(there)))
        assert list(back.tokens) == list(ids)[: len(back.tokens)]
        assert len(back.confidence) <= len(back.tokens)

    def test_translating_changes_neither_its_input_nor_a_later_answer(self, bridge: Bridge, ids: Sequence[int]) -> None:
        given = list(ids)
        first = list(bridge.to_drafter(given))
        assert given == list(ids)
        proposal = Proposal(tuple(first))
        assert bridge.to_target(proposal) == bridge.to_target(proposal)
