"""Cutting text behind ids that stand: what a tokenizer makes of bytes that follow tokens it may no longer change.

A tokenizer cuts a text as a whole. Behind committed ids only the rest of the text is free, so the last few of them are
cut again together with the new bytes, and the result counts only if those next to the seam come out as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.vocabulary import ByteVocabulary

CONTEXT = 12  # ids before the seam that are cut again: some words, so that the seam lies as in the whole text
KEPT = 4  # of these, the last ones must come out unchanged; the first may not, their text begins in the middle
ANCHOR = "\n"  # before texts for tokenizers that begin each one with a space of their own


@dataclass(frozen=True, slots=True)
class Cut:
    """`ids` of new text; id i stands for its bytes from the end of the one before up to `ends[i]`."""

    ids: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def last(self) -> tuple[int, int]:
        """Begin and end of the last id's bytes."""
        return (self.ends[-2] if len(self.ends) > 1 else 0), self.ends[-1]

    def first(self, count: int) -> Cut:
        """The cut up to its first `count` ids."""
        return Cut(self.ids[:count], self.ends[:count])


NOTHING = Cut((), ())


def is_bytes(vocabulary: Vocabulary) -> bool:
    """Whether ids are bytes, which need no cutting."""
    return vocabulary.pin.fingerprint == ByteVocabulary.pin.fingerprint


class Cutter:
    """Cuts text with one vocabulary. Its cost depends on the new bytes and on CONTEXT ids, not on the history."""

    def __init__(self, vocabulary: Vocabulary, anchor: str) -> None:
        self._vocabulary = vocabulary
        self._anchor = anchor

    def after(self, left: Sequence[int], data: bytes) -> Cut | None:
        """`data` behind the ids `left` (some of the last of a text), as far as it is whole UTF-8 with them.

        None when the tokenizer would cut the last ids of `left` otherwise, or does not give exactly these bytes.
        """
        pieces = [self._vocabulary.piece(token) for token in left]
        begin, data = _decodable(pieces, data)
        if not data:
            return NOTHING
        before = b"".join(pieces[begin:])
        found = self._encode(before + data)
        if found is None:
            return None
        ids, bounds = found
        if len(before) not in bounds:
            return None
        seam = sum(end <= len(before) for end in bounds[1:])
        kept = tuple(left[begin:])[-KEPT:]
        if ids[max(0, seam - len(kept)) : seam] != kept:
            return None
        return Cut(ids[seam:], tuple(end - len(before) for end in bounds[seam + 1 :]))

    def _encode(self, data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Ids of `data` and the n + 1 places where they begin and end; the anchor's are at 0 or before."""
        try:
            ids = tuple(self._vocabulary.encode(self._anchor + data.decode()))
            pieces = [self._vocabulary.piece(token) for token in ids]
        except RequestError:
            return None
        spelt = b"".join(pieces)
        extra = len(spelt) - len(data)
        if extra < 0 or spelt[extra:] != data:
            return None
        return ids, tuple(end - extra for end in accumulate(map(len, pieces), initial=0))


def _decodable(pieces: Sequence[bytes], data: bytes) -> tuple[int, bytes]:
    """The first of `pieces` from which on they and `data` are UTF-8, and `data` without what can never be."""
    begin = 0
    while data:
        before = b"".join(pieces[begin:])
        try:
            (before + data).decode()
            break
        except UnicodeDecodeError as error:
            if error.start >= len(before):
                data = data[: error.start - len(before)]
            else:
                begin += _pieces_through(pieces[begin:], error.start)
    return begin, data


def _pieces_through(pieces: Sequence[bytes], position: int) -> int:
    """How many of `pieces` it takes to get past the byte at `position`."""
    return next(i for i, end in enumerate(accumulate(map(len, pieces)), 1) if end > position)


def anchor_of(vocabulary: Vocabulary) -> str | None:
    """What to put before a text so that its own bytes come out; None when this vocabulary does not spell text."""
    for anchor in ("", ANCHOR):
        cut = Cutter(vocabulary, anchor).after((), b"a")
        if cut is not None and cut.ends[-1:] == (1,):
            return anchor
    return None
