from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.daemon.lab.conformance.suites.bridge_suite import Pair
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks.coverage import text_coverage
from pilotfish.hooks.protocols import Bridge, BridgeFactory, Vocabulary
from pilotfish.hooks.types import EMPTY, Proposal, TokenizerPin
from pilotfish.lab.conformance import BridgeConformance
from pilotfish.plugins.bridges import vocab_map
from pilotfish.plugins.bridges.vocab_map import build_table, open_bridge, ranked_coverage

LETTERS = [bytes((i,)) for i in range(256)]
PAIRS = [b"th", b"he", b"in", b"er", b"an", b"re", b"on", b"at", b"en", b"nd", b"ti", b"es", b"or", b"te", b"  "]
WORDS = [b"the", b" the", b"\n\n", b"ing", b" of", b" and"]


def vocabulary(name: str, *pieces: bytes, specials: Sequence[bytes] = (), **pin: int | bool) -> FakeVocabulary:
    every = [*pieces, *specials]
    ids = range(len(pieces), len(every))
    found = TokenizerPin(name, "fake", len(every), **pin)  # type: ignore[arg-type]  # bos: int, add_bos: bool
    return FakeVocabulary(found, every, ids)


def bridge(drafter: Vocabulary, target: Vocabulary) -> Bridge:
    opened = open_bridge(drafter, target)
    assert opened is not None
    return opened


TARGET = vocabulary("map target", *LETTERS, *WORDS, "é?".encode(), b"\xe2\x80", specials=[b"<end>", b"<mine>"])
DRAFTER = vocabulary("map drafter", *reversed(WORDS), *LETTERS, specials=[b"<own>", b"<end>"])
END, MINE = TARGET.pin.n_vocab - 2, TARGET.pin.n_vocab - 1


class TestVocabMap(BridgeConformance):
    @pytest.fixture
    def factory(self) -> BridgeFactory:
        return open_bridge

    @pytest.fixture
    def pair(self) -> Pair:
        return DRAFTER, TARGET

    @pytest.fixture
    def strangers(self) -> Pair:
        return vocabulary("letters", *LETTERS), vocabulary("pairs", *LETTERS, *PAIRS)

    @pytest.fixture
    def ids(self) -> Sequence[int]:
        return [257, 101, 258]


def test_ids_of_equal_bytes_map_and_a_proposal_ends_at_the_first_that_does_not() -> None:
    joined = bridge(vocabulary("aby", b"a", b"b", b"Y"), vocabulary("abx", b"a", b"b", b"X"))
    assert joined.to_target(Proposal((0, 1, 2, 0), (0.9, 0.8, 0.7, 0.6))) == Proposal((0, 1), (0.9, 0.8))
    assert joined.to_target(Proposal((2, 0))) == EMPTY
    assert list(joined.to_drafter([1, 0])) == [1, 0]


def test_ids_that_are_rarely_cut_alike_are_no_map() -> None:
    """Every single letter maps, and yet the drafter's ids are not the ones that the target would choose."""
    drafter, target = vocabulary("letters", *LETTERS), vocabulary("pairs", *LETTERS, *PAIRS)
    share = text_coverage(drafter, target)
    assert share is not None
    assert 0.5 < share < vocab_map.MIN_TEXT_COVERAGE
    assert open_bridge(drafter, target) is None
    assert open_bridge(target, drafter) is None


def test_a_pair_that_shares_too_little_is_left_alone() -> None:
    assert open_bridge(vocabulary("ayz", b"a", b"Y", b"Z"), vocabulary("abx", b"a", b"b", b"X")) is None


def test_junk_ends_a_proposal() -> None:
    joined = bridge(DRAFTER, TARGET)
    for junk in (-1, 10**9, "x", None):
        assert len(joined.to_target(Proposal((0, junk, 0)))) == 1  # type: ignore[arg-type]  # junk


def test_special_tokens_map_to_special_ones_of_equal_text_only() -> None:
    target = vocabulary("plain end", *LETTERS, b"<own>", specials=[b"<end>"])
    drafter = vocabulary("special own", *LETTERS, specials=[b"<end>", b"<own>"])
    joined = bridge(drafter, target)
    assert joined.to_target(Proposal((256,))).tokens == (257,)
    assert joined.to_target(Proposal((257,))) == EMPTY
    assert list(joined.to_drafter([97, 257, 98])) == [97, 256, 98]


def test_a_special_id_that_the_drafter_lacks_is_not_seen() -> None:
    assert list(bridge(DRAFTER, TARGET).to_drafter([MINE, 97])) == list(bridge(DRAFTER, TARGET).to_drafter([97]))
    assert list(bridge(DRAFTER, TARGET).to_drafter([END])) == [DRAFTER.pin.n_vocab - 1]


def test_history_without_a_counterpart_is_spelt_in_the_drafters_ids() -> None:
    joined = bridge(DRAFTER, TARGET)
    letter, half = 256 + len(WORDS), 256 + len(WORDS) + 1
    assert b"".join(map(DRAFTER.piece, joined.to_drafter([letter, half, 0x99]))) == "é?\u2019".encode()


def test_what_cannot_be_spelt_is_not_seen() -> None:
    joined = bridge(vocabulary("aby", b"a", b"b", b"Y"), vocabulary("abx", b"a", b"b", b"X"))
    assert list(joined.to_drafter([0, 2, 1])) == [0, 1]


class Preferring(FakeVocabulary):
    """Writes the letter a with the last of its ids."""

    def encode(self, text: str) -> list[int]:
        every = {piece: token for token, piece in enumerate(self._pieces)}
        return [every[letter.encode()] for letter in text]


def test_of_several_ids_with_equal_bytes_the_one_that_the_tokenizer_uses_counts() -> None:
    first = FakeVocabulary(TokenizerPin("first a", "fake", 3), [b"a", b"b", b"a"])
    last = Preferring(TokenizerPin("last a", "fake", 3), [b"a", b"b", b"a"])
    assert build_table(first, last).to_target.tolist() == [2, 1, 2]
    assert build_table(first, last).to_drafter.tolist() == [0, 1, 0]


def test_a_drafter_trained_with_bos_begins_with_its_own() -> None:
    target = vocabulary("map bos", *LETTERS, specials=[b"<s>"], bos=256)
    drafter = vocabulary("map bos too", *LETTERS, specials=[b"<bos>"], bos=256, add_bos=True)
    for first in ([256], []):
        joined = bridge(drafter, target)
        assert list(joined.to_drafter([*first, 97])) == [256, 97]
        assert list(joined.to_drafter([98])) == [98]


def test_the_table_is_built_once_for_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    target = vocabulary("counted", *LETTERS)

    def piece(token: int) -> bytes:
        asked.append(token)
        return LETTERS[token]

    monkeypatch.setattr(target, "piece", piece)
    assert open_bridge(DRAFTER, target) is not None
    first = len(asked)
    assert first >= 256
    assert open_bridge(DRAFTER, target) is not None
    assert len(asked) == first


def test_frequent_ids_weigh_more() -> None:
    target = vocabulary("weighed", b"a", b"b", b"c", b"d")
    common, rare = vocabulary("common", b"a", b"b"), vocabulary("rare", b"c", b"d")
    assert ranked_coverage(build_table(common, target)) == pytest.approx(1.5 / (25 / 12))
    assert ranked_coverage(build_table(rare, target)) == pytest.approx((1 / 3 + 1 / 4) / (25 / 12))
