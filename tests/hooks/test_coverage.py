from __future__ import annotations

import unicodedata

from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks.coverage import text_coverage
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import TokenizerPin
from pilotfish.hooks.vocabulary import ByteVocabulary

LETTERS = [bytes((i,)) for i in range(256)]


def vocabulary(*pieces: bytes) -> FakeVocabulary:
    return FakeVocabulary(TokenizerPin("made up", "fake", len(pieces)), pieces)


class Spaced(FakeVocabulary):
    def encode(self, text: str) -> list[int]:
        return super().encode(" " + text)


def test_equal_cuts_cover_everything_whatever_the_ids() -> None:
    assert text_coverage(vocabulary(*LETTERS), vocabulary(*reversed(LETTERS))) == 1.0
    assert text_coverage(ByteVocabulary(), vocabulary(*LETTERS)) == 1.0


def test_only_tokens_with_the_same_begin_and_end_count() -> None:
    drafter, target = vocabulary(*LETTERS, b"ab", b"cd"), vocabulary(*LETTERS, b"bc")
    assert text_coverage(drafter, target, "abcd") == 0.0
    assert text_coverage(drafter, target, "xbcx") == 2 / 3
    assert text_coverage(vocabulary(*LETTERS), target, "xbcx") == 2 / 3
    assert text_coverage(target, vocabulary(*LETTERS), "xbcx") == 2 / 4


def test_a_space_before_the_text_does_not_shift_it() -> None:
    spaced = Spaced(TokenizerPin("spaced", "fake", 256), LETTERS)
    assert text_coverage(spaced, vocabulary(*LETTERS), "abc") == 1.0
    assert text_coverage(vocabulary(*LETTERS), spaced, "abc") == 3 / 4


def test_a_vocabulary_that_cannot_spell_the_text_is_not_judged_by_it() -> None:
    assert text_coverage(vocabulary(b"a"), vocabulary(*LETTERS)) is None
    assert text_coverage(vocabulary(*LETTERS), vocabulary(b"a")) is None


def test_the_sample_is_left_alone_by_normalization() -> None:
    assert unicodedata.is_normalized("NFC", SAMPLE)
