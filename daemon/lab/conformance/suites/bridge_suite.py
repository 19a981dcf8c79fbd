"""What every bridge must do, whatever vocabularies it joins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.daemon.lab.conformance.suites.own_fixtures import needs
from pilotfish.hooks.protocols import Bridge, BridgeFactory, Vocabulary
from pilotfish.hooks.types import EMPTY, Proposal

Pair = tuple[Vocabulary, Vocabulary]  # the drafter's and the target's


class BridgeConformance:
    """Needs fixtures `factory`, `pair` (vocabularies that it joins) and `strangers` (vocabularies that it does not).

    `ids` are target ids that the bridge can express both ways.
    """

    @pytest.fixture
    def factory(self) -> BridgeFactory:
        needs("factory")

    @pytest.fixture
    def pair(self) -> Pair:
        needs("pair")

    @pytest.fixture
    def strangers(self) -> Pair:
        needs("strangers")

    @pytest.fixture
    def ids(self) -> Sequence[int]:
        return [3, 1, 2]

    @pytest.fixture
    def bridge(self, factory: BridgeFactory, pair: Pair) -> Bridge:
        bridge = factory(*pair)
        assert bridge is not None, "the factory refused the pair it was said to join"
        return bridge

    def test_it_is_a_bridge(self, bridge: Bridge) -> None:
        assert isinstance(bridge, Bridge)

    def test_it_leaves_other_pairs_to_other_bridges(self, factory: BridgeFactory, strangers: Pair) -> None:
        assert factory(*strangers) is None

    def test_nothing_becomes_nothing(self, bridge: Bridge, ids: Sequence[int]) -> None:
        for committed in ([], ids):
            bridge.to_drafter(committed)
            assert bridge.to_target(EMPTY).tokens == ()
            assert list(bridge.to_drafter([])) == []

    def test_committed_ids_reach_the_drafter_in_its_vocabulary(
        self, bridge: Bridge, pair: Pair, ids: Sequence[int]
    ) -> None:
        translated = bridge.to_drafter(ids)
        assert translated
        assert all(0 <= token < pair[0].pin.n_vocab for token in translated)

    def test_the_drafter_is_told_what_was_committed_and_nothing_else(
        self, bridge: Bridge, pair: Pair, ids: Sequence[int]
    ) -> None:
        told, committed = b"", b""
        for token in [*ids, *ids]:
            committed += _spelt(pair[1], [token])
            told += _spelt(pair[0], bridge.to_drafter([token]))
            assert committed.startswith(told)

    def test_what_went_over_comes_back(self, factory: BridgeFactory, pair: Pair, ids: Sequence[int]) -> None:
        # In two sessions: a bridge may have given less than it was told, and a proposal would continue the rest.
        over, back = factory(*pair), factory(*pair)
        assert over is not None
        assert back is not None
        there = tuple(over.to_drafter(ids))
        found = back.to_target(Proposal(there, (0.5,) * len(there)))
        assert found.tokens
        assert list(found.tokens[:-1]) == list(ids)[: len(found.tokens) - 1]
        assert _spelt(pair[1], ids).startswith(_spelt(pair[1], found.tokens))  # the last may be a part of one
        assert len(found.confidence) <= len(found.tokens)

    def test_a_proposal_stays_in_the_targets_vocabulary(self, bridge: Bridge, pair: Pair, ids: Sequence[int]) -> None:
        every = tuple(range(min(pair[0].pin.n_vocab, 300)))
        proposals = [Proposal(every), Proposal(every[::-1], (0.5,) * len(every))]
        proposals += [Proposal((token,), (1.0,)) for token in every]
        proposed = 0
        for committed in ([], ids):
            bridge.to_drafter(committed)
            for proposal in proposals:
                back = bridge.to_target(proposal)
                assert all(type(token) is int and 0 <= token < pair[1].pin.n_vocab for token in back.tokens)
                assert len(back.confidence) <= len(back.tokens)
                assert all(0 <= one <= 1 for one in back.confidence)
                proposed += len(back.tokens)
        assert proposed > 0

    def test_translating_changes_neither_its_input_nor_a_later_answer(self, bridge: Bridge, ids: Sequence[int]) -> None:
        given = list(ids)
        first = list(bridge.to_drafter(given))
        assert given == list(ids)
        proposal = Proposal(tuple(first))
        assert bridge.to_target(proposal) == bridge.to_target(proposal)

    def test_two_sessions_do_not_mix(self, factory: BridgeFactory, pair: Pair, ids: Sequence[int]) -> None:
        one, other, alone = factory(*pair), factory(*pair), factory(*pair)
        assert one is not None
        assert other is not None
        assert alone is not None
        proposal = Proposal(tuple(alone.to_drafter(ids)))
        one.to_drafter(ids)
        other.to_drafter([*reversed(ids)])
        assert one.to_target(proposal) == alone.to_target(proposal)


def _spelt(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    return b"".join(vocabulary.piece(token) for token in ids if not vocabulary.special(token))
