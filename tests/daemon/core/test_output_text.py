"""What of an answer may be sent, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.daemon.core.output_text import OutputText, incomplete_tail


def pushed(text: OutputText, *pieces: bytes, last: bool = True) -> list[str]:
    return [text.push(piece, last=last and i == len(pieces) - 1) for i, piece in enumerate(pieces)]


def test_a_character_in_two_pieces_is_sent_when_it_is_whole():
    assert pushed(OutputText(), b"\xf0\x9f", b"\x98\x8a") == ["", "\N{SMILING FACE WITH SMILING EYES}"]


def test_half_a_character_at_the_end_of_the_budget_is_dropped_and_nothing_else_is():
    assert pushed(OutputText(), b"so \xf0\x9f") == ["so "]


def test_bytes_that_are_no_utf8_become_replacement_characters():
    assert pushed(OutputText(), b"a\xffb", b"c") == ["a\ufffdb", "c"]


def test_text_before_a_stop_string_is_sent_and_the_rest_is_gone():
    text = OutputText(["END"])
    assert pushed(text, b"one E", b"N", b"D two", last=False) == ["", "", "one "]
    assert text.stopping_word == "END"


def test_what_looked_like_a_stop_string_is_sent_once_it_is_decided():
    assert pushed(OutputText(["END"]), b"E", b"N", b"TER", last=False) == ["", "", "ENTER"]


def test_held_text_is_sent_when_nothing_follows():
    assert pushed(OutputText(["END"]), b"the E", b"N") == ["", "the EN"]


def test_the_earliest_of_several_stop_strings_wins():
    text = OutputText(["b", "ab"])
    assert pushed(text, b"xab", last=False) == ["x"]
    assert text.stopping_word == "ab"


def test_a_stop_string_inside_one_piece_is_found():
    text = OutputText(["\n\n"])
    assert pushed(text, b"a\n", b"\nb\n", last=False) == ["", "a"]


@pytest.mark.parametrize(
    ("data", "tail"),
    [(b"", 0), (b"a", 0), (b"\xc3", 1), (b"\xc3\xa9", 0), (b"\xe2\x82", 2), (b"\xf0\x9f\x98", 3), (b"\x80\x80", 0)],
)
def test_the_incomplete_tail_is_counted_in_bytes(data: bytes, tail: int):
    assert incomplete_tail(data) == tail


@given(st.text(), st.data(), st.lists(st.text(min_size=1, max_size=3), max_size=2))
def test_any_split_of_a_text_gives_the_text_up_to_the_first_stop_string(answer, data, stops):
    raw = answer.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    text, sent = OutputText(stops), ""
    for i, piece in enumerate(pieces):
        sent += text.push(piece, last=i == len(pieces) - 1)
        if text.stopping_word:
            break
    ends = [at for stop in stops if (at := answer.find(stop)) >= 0]
    assert sent == (answer[: min(ends)] if ends else answer)
