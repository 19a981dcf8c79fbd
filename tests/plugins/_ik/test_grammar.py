"""Limits that ik_llama.cpp's parser refuses mean what they mean to libllama: none."""

from __future__ import annotations

import pytest

from pilotfish.plugins._ik.grammar import _without_far_limits


@pytest.mark.parametrize(
    ("grammar", "read"),
    [
        ('root ::= "a"{0,2000}', 'root ::= "a"{0,2000}'),
        ('root ::= "a"{3, 2001} [b]{0,99999999999999999999}', 'root ::= "a"{3,} [b]{0,}'),
        (
            'root ::= "{0,5000}" [{0,5000}] # {0,5000}\n "b"{5000}',
            'root ::= "{0,5000}" [{0,5000}] # {0,5000}\n "b"{5000}',
        ),
        ('root ::= "\\"{0,5000}" "b"{0,5000}', 'root ::= "\\"{0,5000}" "b"{0,}'),
    ],
)
def test_a_limit_beyond_what_it_counts_is_none(grammar: str, read: str) -> None:
    assert _without_far_limits(grammar) == read


@pytest.mark.parametrize("piece", ["[", '"\\', "{", "{1", "{1,", "{ ", "#"])
def test_text_that_ends_nowhere_is_read_once(piece: str) -> None:
    """Half a megabyte of it: read again from every character it would take hours."""
    assert _without_far_limits(piece * 250_000) == piece * 250_000
