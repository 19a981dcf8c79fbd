"""Text cut anew between small vocabularies whose every cut can be foreseen."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import pytest

from pilotfish.daemon.lab.conformance.suites.bridge_suite import Pair
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks.protocols import Bridge, BridgeFactory, Vocabulary
from pilotfish.hooks.types import EMPTY, Proposal, TokenizerPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.lab.conformance import BridgeConformance
from pilotfish.plugins.bridges.retokenize import open_bridge

LETTERS = [bytes((i,)) for i in range(256)]
BOS, END, OWN = b"<bos>", b"<end>", b"<own>"


class Spelling:
    """A vocabulary by its pieces: every byte, some words, and special tokens after them."""

    def __init__(self, name: str, *words: str, specials: Sequence[bytes] = (), **pin: int | bool) -> None:
        self.pieces = [*LETTERS, *(word.encode() for word in words), *specials]
        count = len(self.pieces)
        self.vocabulary = FakeVocabulary(
            TokenizerPin(name, "fake", count, **pin),  # type: ignore[arg-type]  # bos: int, add_bos: bool
            self.pieces,
            range(count - len(specials), count),
        )

    def ids(self, *pieces: str | bytes) -> list[int]:
        return [self.pieces.index(one if isinstance(one, bytes) else one.encode()) for one in pieces]

    def says(self, ids: Sequence[int]) -> list[bytes]:
        return [self.pieces[token] for token in ids]


TARGET = Spelling(
    "t", "hel", "lo", "hello", " you", " unbeliev", "able", " un", " the", "  ", specials=[BOS, END, b"<t>"]
)
DRAFTER = Spelling("d", "hello", " yo", "u", " un", "bel", "iev", " unbelievable", " the", " re", specials=[OWN, END])


def bridge(drafter: Vocabulary = DRAFTER.vocabulary, target: Vocabulary = TARGET.vocabulary) -> Bridge:
    opened = open_bridge(drafter, target)
    assert opened is not None
    return opened


def proposed(bridge: Bridge, *pieces: str | bytes, confidence: tuple[float, ...] = ()) -> Proposal:
    return bridge.to_target(Proposal(tuple(DRAFTER.ids(*pieces)), confidence))


def said(bridge: Bridge, *pieces: str | bytes) -> list[bytes]:
    return TARGET.says(proposed(bridge, *pieces).tokens)


def told(bridge: Bridge, *pieces: str | bytes) -> list[bytes]:
    return DRAFTER.says(bridge.to_drafter(TARGET.ids(*pieces)))


class TestRetokenize(BridgeConformance):
    @pytest.fixture
    def factory(self) -> BridgeFactory:
        return open_bridge

    @pytest.fixture
    def pair(self) -> Pair:
        return DRAFTER.vocabulary, TARGET.vocabulary

    @pytest.fixture
    def strangers(self) -> Pair:
        numbers = FakeVocabulary(TokenizerPin("numbers", "fake", 10))
        return numbers, TARGET.vocabulary

    @pytest.fixture
    def ids(self) -> Sequence[int]:
        return TARGET.ids(" the", " you", "lo")


class TestTowardsTheTarget:
    def test_a_suggestion_is_cut_as_the_target_cuts_it(self) -> None:
        joined = bridge()
        told(joined, "hello")
        assert said(joined, " yo", "u", " the") == [b" you", b" the"]

    def test_what_would_rewrite_committed_ids_proposes_nothing(self) -> None:
        joined = bridge()
        told(joined, "hel", "lo")  # the target would write "hello" in one
        assert proposed(joined, " yo", "u") == EMPTY

    def test_a_suggestion_that_grows_into_the_last_committed_id_proposes_nothing(self) -> None:
        joined = bridge()
        assert told(joined, " the", "hel") == [b" the", b"h", b"e"]
        assert said(joined, "l", " the") == [b" the"]
        assert proposed(joined, "l", "l", "o") == EMPTY

    def test_an_old_odd_cut_is_forgotten(self) -> None:
        joined = bridge()
        told(joined, "hel", "lo", *[" the"] * 4)
        assert said(joined, " the") == [b" the"]

    def test_the_last_token_is_cut_when_more_text_could_merge_it(self) -> None:
        joined = bridge()
        told(joined, " the")
        assert said(joined, " un", "bel", "iev") == [b" unbeliev"]
        assert said(joined, " un", "bel") == [
            b" un",
            b"b",
            b"e",
        ]  # the drafter's own token ends with this l, and goes on
        assert said(joined, " the", " ") == [b" the"]

    def test_a_whole_token_of_the_drafter_keeps_what_it_spans_but_for_the_end(self) -> None:
        joined = bridge()
        told(joined, " the")
        assert said(joined, " unbelievable", " the") == [b" unbeliev", b"able", b" the"]
        assert said(joined, " unbelievable") == [b" unbeliev"]

    def test_half_a_character_at_the_end_is_cut(self) -> None:
        joined = bridge()
        told(joined, " the")
        assert said(joined, " the", b"\xc3") == [b" the"]
        assert said(joined, " the", b"\xc3", b"\xa9") == [b" the", b"\xc3", b"\xa9"]

    def test_broken_bytes_end_a_suggestion(self) -> None:
        joined = bridge()
        told(joined, " the")
        assert said(joined, " the", " the", b"\xff", " the") == [b" the", b" the"]

    def test_junk_ends_a_suggestion(self) -> None:
        joined = bridge()
        told(joined, " the")
        the = DRAFTER.ids(" the")
        for junk in (-1, 10**9, "x", None, True):
            assert TARGET.says(joined.to_target(Proposal((*the, junk, *the))).tokens) == [b" the"]  # type: ignore[arg-type]  # junk

    def test_confidences_are_multiplied_over_what_makes_up_a_token(self) -> None:
        joined = bridge()
        told(joined, "hello")
        assert proposed(joined, " yo", "u", " the", confidence=(0.5, 0.5, 0.9)).confidence == (0.25, 0.9)
        assert proposed(joined, " unbelievable", " the", confidence=(0.5, 0.9)).confidence == (0.5, 1.0, 0.9)
        assert proposed(joined, " yo", "u", " the", confidence=(0.5, 0.5)).confidence == (0.25,)
        assert proposed(joined, " yo", "u", " the", confidence=(0.5,)).confidence == ()


class TestTowardsTheDrafter:
    def test_it_sees_a_committed_word_to_its_end(self) -> None:
        assert told(bridge(), " the", "hel", "lo") == [b" the", b"hello"]
        assert told(bridge(), "hello", " the") == [b"hello", b" the"]

    def test_a_token_inside_of_a_word_waits_for_more(self) -> None:
        joined = bridge()
        assert told(joined, " unbeliev") == [b" un", b"bel"]
        assert told(joined, "able", " the") == [b"iev", b"a", b"b", b"l", b"e", b" the"]

    def test_a_proposal_must_begin_with_what_was_held(self) -> None:
        joined = bridge()
        told(joined, " the", " unbeliev")
        assert said(joined, "iev", " the") == [b" the"]
        assert said(joined, " the") == []
        assert said(joined, "i") == []
        assert said(joined) == []

    def test_held_bytes_carry_no_confidence(self) -> None:
        joined = bridge()
        told(joined, " the", " unbeliev")
        assert proposed(joined, "iev", " the", confidence=(0.1, 0.9)) == Proposal(tuple(TARGET.ids(" the")), (0.9,))

    def test_blanks_wait_for_the_word(self) -> None:
        joined = bridge()
        assert told(joined, " the", " ") == [b" the"]
        assert told(joined, "r", "e") == [b" re"]

    def test_half_a_character_waits_for_the_rest(self) -> None:
        joined = bridge()
        assert told(joined, " the", b"\xf0", b"\x9f") == [b" the"]
        assert proposed(joined, " the") == EMPTY
        assert said(joined, *[bytes((b,)) for b in "\U0001f60a".encode()], " the") == [b"\x98", b"\x8a", b" the"]
        assert told(joined, b"\x98", b"\x8a") == [bytes((b,)) for b in "\U0001f60a".encode()]

    def test_broken_bytes_are_left_out_and_the_rest_goes_on(self) -> None:
        joined = bridge()
        assert told(joined, " the", b"\xff", " the") == [b" the", b" the"]
        assert told(joined, b"\xf0", b"\x9f", " the") == [b" the"]
        assert said(joined, " the") == [b" the"]

    def test_nothing_given_is_ever_taken_back(self) -> None:
        joined = bridge()
        assert told(joined, "h", "e", "l", "l") == [b"h", b"e", b"l", b"l"]
        assert told(joined, "o") == [b"o"]  # cut together it would be one token


class TestSpecialTokens:
    def test_they_end_a_text_and_become_their_counterpart_or_nothing(self) -> None:
        joined = bridge()
        assert told(joined, " unbeliev", END, "hello", b"<t>") == [b" un", b"bel", b"iev", END, b"hello"]
        assert told(joined, "hello") == [b"hello"]

    def test_text_on_their_two_sides_is_cut_apart(self) -> None:
        joined = bridge()
        told(joined, "hel", END)
        assert said(joined, "l", "o", " the") == [b"lo", b" the"]

    def test_a_suggested_end_is_the_targets_own(self) -> None:
        joined = bridge()
        told(joined, "hello")
        assert said(joined, " un", "bel", "iev", END, " the") == [b" unbeliev", END]
        assert said(joined, END) == [END]
        assert said(joined, " the", OWN) == [b" the"]

    def test_its_confidence_is_the_drafters(self) -> None:
        joined = bridge()
        told(joined, "hello")
        assert proposed(joined, " yo", "u", END, confidence=(0.5, 0.5, 0.9)).confidence == (0.25, 0.9)

    def test_text_that_looks_like_one_is_text(self) -> None:
        joined = bridge()
        told(joined, "hello")
        letters = [letter.encode() for letter in "<end>"]
        assert said(joined, *letters) == letters

    def test_a_drafter_trained_with_bos_begins_with_its_own(self) -> None:
        target = Spelling("t bos", specials=[BOS], bos=256)
        drafter = Spelling("d bos", specials=[OWN], bos=256, add_bos=True)
        for first in ([256], []):
            joined = bridge(drafter.vocabulary, target.vocabulary)
            assert list(joined.to_drafter([])) == []
            assert drafter.says(joined.to_drafter([*first, *target.ids("a")])) == [OWN, b"a"]
            assert drafter.says(joined.to_drafter(target.ids("b"))) == [b"b"]


class TestBytes:
    def test_a_drafter_of_bytes_is_told_everything_at_once(self) -> None:
        joined = bridge(ByteVocabulary())
        assert bytes(joined.to_drafter(TARGET.ids(" unbeliev", " ", b"\xf0", b"\x9f"))) == b" unbeliev \xf0\x9f"
        assert bytes(joined.to_drafter(TARGET.ids(END, "hello"))) == b"hello"

    def test_its_last_target_token_may_always_go_on(self) -> None:
        joined = bridge(ByteVocabulary())
        joined.to_drafter(TARGET.ids("hello"))
        found = joined.to_target(Proposal(tuple(b" you the"), (0.5,) * 4))
        assert found == Proposal(tuple(TARGET.ids(" you")), (0.0625,))

    def test_a_target_of_bytes_takes_every_byte(self) -> None:
        joined = bridge(DRAFTER.vocabulary, ByteVocabulary())
        assert DRAFTER.says(joined.to_drafter(list(b"hello yo"))) == [b"hello", b" yo"]
        found = joined.to_target(Proposal(tuple(DRAFTER.ids("u", " the", b"\xc3")), (0.5, 0.25, 0.9)))
        assert bytes(found.tokens) == b"u the\xc3"
        assert found.confidence == (0.5, 0.25, 1.0, 1.0, 1.0, 0.9)


class Spaced(FakeVocabulary):
    """Puts a space before every text, as many sentencepiece models do."""

    def encode(self, text: str) -> list[int]:
        return super().encode(" " + text)


class Composed(FakeVocabulary):
    """Composes characters before it cuts them, as Qwen's tokenizer does."""

    def encode(self, text: str) -> list[int]:
        return super().encode(unicodedata.normalize("NFC", text))


class TestTokenizersThatChangeText:
    SPACED = Spaced(TokenizerPin("spaced", "fake", len(TARGET.pieces)), TARGET.pieces)
    COMPOSED = Composed(TokenizerPin("composed", "fake", len(DRAFTER.pieces)), DRAFTER.pieces)

    def test_a_space_that_nobody_wrote_is_not_proposed(self) -> None:
        joined = bridge(target=self.SPACED)
        assert said(joined, "hello", " the") == [b"hello", b" the"]
        told(joined, "hello")
        assert said(joined, " yo", "u", " the") == [b" you", b" the"]

    def test_nor_told_to_the_drafter(self) -> None:
        joined = bridge(drafter=Spaced(TokenizerPin("spaced d", "fake", len(DRAFTER.pieces)), DRAFTER.pieces))
        assert told(joined, "hello", " the") == [b"hello", b" the"]

    def test_a_normalizing_drafter_gets_its_own_form(self) -> None:
        joined = bridge(drafter=self.COMPOSED)
        assert b"".join(told(joined, "e", "\u0301".encode()[:1], "\u0301".encode()[1:], " the")) == "é the".encode()
        assert said(joined, " the") == [b" the"]

    def test_a_normalizing_target_is_never_offered_other_text(self) -> None:
        target = Composed(TokenizerPin("composed t", "fake", len(TARGET.pieces)), TARGET.pieces)
        joined = bridge(target=target)
        told(joined, " the")
        assert said(joined, "e", *[bytes((b,)) for b in "\u0301".encode()], " the") == []


class Counting:
    """Counts what a vocabulary is asked for: characters to cut, and ids to spell."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.pin = vocabulary.pin
        self._vocabulary = vocabulary
        self.work = 0

    def encode(self, text: str) -> list[int]:
        self.work += len(text)
        return self._vocabulary.encode(text)

    def piece(self, token: int) -> bytes:
        self.work += 1
        return self._vocabulary.piece(token)

    def special(self, token: int) -> bool:
        return self._vocabulary.special(token)


def story() -> Iterator[int]:
    while True:
        yield from TARGET.ids("hello", " you", " the", " unbeliev", "able", " the", " ", "lo")


def work_of_a_round(drafter: Vocabulary, committed: int) -> int:
    """What one round costs after so many committed ids: told to the drafter, and a proposal taken."""
    counted = Counting(drafter), Counting(TARGET.vocabulary)
    joined = bridge(*counted)
    ids = story()
    joined.to_drafter([next(ids) for _ in range(committed)])
    before = sum(one.work for one in counted)
    joined.to_drafter([next(ids)])
    joined.to_target(Proposal(tuple(drafter.encode(" you the hello"))))
    return sum(one.work for one in counted) - before


@pytest.mark.parametrize("drafter", [DRAFTER.vocabulary, ByteVocabulary()], ids=["words", "bytes"])
def test_a_rounds_work_does_not_grow_with_the_history(drafter: Vocabulary) -> None:
    short, long = (work_of_a_round(drafter, count) for count in (104, 20_000))
    assert 0 < short == long


def test_a_drafter_of_bytes_is_asked_for_more_ids_than_one_of_words():
    words = FakeVocabulary(TokenizerPin("w", "fake", 8), [b"a", b" a", b"b", b" b", b"ab", b" ab", b"c", b" c"])
    spelt = open_bridge(ByteVocabulary(), words)
    assert spelt is not None
    assert spelt.drafter_ids(4) > 4 * 4
