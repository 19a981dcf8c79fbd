"""How far two vocabularies cut text alike: what decides whether ids can be mapped one to one."""

from __future__ import annotations

from itertools import accumulate

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.sample_text import SAMPLE


def text_coverage(drafter: Vocabulary, target: Vocabulary, text: str = SAMPLE) -> float | None:
    """The share of the target's tokens in `text` that the drafter cuts at the same places; None if one cannot spell it.

    A text stands for the frequency of ids better than their rank does: in Gemma's vocabulary the full stop and the
    single letters come after 236,000 rarer ids. Where both cut at the same places the ids have equal bytes, and a
    drafter's ids, mapped one by one, are the ones that the target would have chosen.
    """
    wanted, given = _spans(target, text), _spans(drafter, text)
    if not wanted or not given:
        return None
    return len(wanted & given) / len(wanted)


def _spans(vocabulary: Vocabulary, text: str) -> set[tuple[int, int]]:
    """Begin and end of every token, in bytes; nothing when the pieces do not spell the text."""
    try:
        pieces = [vocabulary.piece(token) for token in vocabulary.encode(text)]
    except RequestError:
        return set()
    data, spelt = text.encode(), b"".join(pieces)
    extra = len(spelt) - len(data)  # some tokenizers put a space before every text
    if extra < 0 or spelt[extra:] != data:
        return set()
    ends = [end - extra for end in accumulate(map(len, pieces))]
    return set(zip([-extra, *ends], ends, strict=False))
