"""Stop strings are found where a plain search finds them, in one pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.daemon.core.stop_words import FoundWord, StopWords

words_of_few_letters = st.lists(st.binary(min_size=1, max_size=5).map(lambda word: bytes(b & 1 for b in word)))


def fed(words: list[bytes], *pieces: bytes) -> list[FoundWord | None]:
    watch = StopWords(words)
    return [watch.feed(piece) for piece in pieces]


def test_a_stop_string_may_begin_in_one_piece_and_end_in_another():
    assert fed([b"stop"], b"a st", b"op b") == [None, FoundWord(b"stop", 6)]


def test_the_earliest_wins_and_of_two_that_begin_there_the_shorter():
    assert fed([b"b", b"abc", b"ab"], b"xabc") == [FoundWord(b"ab", 3)]


def test_a_stop_string_inside_the_beginning_of_a_longer_one_is_found():
    assert fed([b"aabaac", b"ba"], b"aaba") == [FoundWord(b"ba", 2)]


def test_an_end_that_begins_a_stop_string_is_undecided():
    watch = StopWords([b"abab"])
    answers = []
    for byte in b"xabac":
        assert watch.feed(bytes([byte])) is None
        answers.append(watch.undecided)
    assert answers == [False, True, True, True, False]


@given(words_of_few_letters, st.binary(max_size=30).map(lambda text: bytes(b & 1 for b in text)))
def test_it_finds_what_a_search_for_each_finds(words, text):
    starts = [(text.find(word), word) for word in words if word in text]
    watch = StopWords(words)
    found = watch.feed(text)
    assert (found and (len(text) - found.before, found.word)) == min(starts, default=None)
    if not found:
        begun = any(text.endswith(word[:n]) for word in words for n in range(1, len(word)))
        assert watch.undecided == begun


def test_text_that_nearly_is_a_long_stop_string_is_looked_through_once():
    nearly = b"ab" * 30_000
    watch = StopWords([nearly + b"!"])
    for _ in range(100):  # a comparison with every beginning for every piece would be 10**12 bytes
        assert watch.feed(b"ab" * 1_000) is None
        assert watch.undecided
    assert watch.feed(b"!") == FoundWord(nearly + b"!", len(nearly) + 1)
