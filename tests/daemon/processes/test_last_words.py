"""What is kept of a process's output, and how its end is told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.daemon.processes.last_words import LAST_LINES, LONGEST_LINE, LastWords, how_it_ended


@pytest.mark.parametrize(
    ("code", "told"),
    [(None, "is still running"), (0, "exit code 0"), (3, "exit code 3"), (-9, "ended by signal 9")],
)
def test_an_end_is_told_in_words(code, told):
    assert how_it_ended(code, "exit code") == told


def lines_of(*chunks: bytes) -> tuple[str, ...]:
    words = LastWords("a process")
    for chunk in chunks:
        words.hear(chunk)
    words.end()
    return words.lines


def test_the_last_lines_are_kept_without_the_empty_ones():
    said = "".join(f"line {n}\n\n" for n in range(20)).encode()
    assert lines_of(said) == tuple(f"line {n}" for n in range(20 - LAST_LINES, 20))


def test_a_line_that_never_ended_is_one_and_what_is_no_text_is_shown_as_far_as_it_can_be():
    assert lines_of(b"loading\nGGML_ASSERT(\xff) fai", b"led") == ("loading", "GGML_ASSERT(\ufffd) failed")


def test_a_line_without_an_end_is_bounded():
    (line,) = lines_of(*[b"x" * LONGEST_LINE] * 5, b"the end")
    assert line.endswith("xthe end")
    assert len(line) < 1000


def test_a_message_is_none_of_the_words():
    seen = []
    words = LastWords("a process", lambda line: seen.append(line) or line == "ready")
    words.hear(b"loading\nready\nfailing\n")
    assert words.lines == ("loading", "failing")
    assert seen == ["loading", "ready", "failing"]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_it_does_not_matter_in_which_pieces_it_comes(said, cuts):
    edges = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    pieces = [said[a:b] for a, b in pairwise(edges)]
    assert lines_of(*pieces) == lines_of(said)
