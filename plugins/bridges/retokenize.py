"""The bridge between any two tokenizers: what is said on one side is cut anew on the other, aligned by bytes.

Towards the drafter, committed text is cut as it comes and never taken back. Towards the target, a suggestion is used
only if the target's tokenizer would leave the committed ids before it as they are; a boundary that it would rewrite
yields an empty proposal. Each call looks at the new text and at a few ids before it, so its cost does not depend on the
history's length.

**What is withheld.** Text that ends inside a character waits for the rest of it. So does the last token when more text
may still merge it: it is taken to be final only if it begins and ends where tokens of the other side do too, and is not
just blanks, which join the word to come. Withholding every last token instead would cost most of the gain: a round ends
with the token in which the drafter was wrong, and a drafter that does not see it suggests the same wrong one again. A
drafter that is not shown the end of the text must say it itself: only proposals that begin with it count.

**Special tokens** end a text. The other side gets its own special token of equal text, or nothing.

**Broken UTF-8** in the committed text is left out on the drafter's side; on the target's, text counts from behind it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Bridge, BridgeFactory, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EMPTY, Proposal
from pilotfish.plugins.bridges._cutting import CONTEXT, NOTHING, Cut, Cutter, is_bytes
from pilotfish.plugins.bridges._facts import Facts, facts_of, opening

NAME = "retokenize"
_BLANKS = b" \t"
BYTES_PER_TOKEN = 5  # about what English and code need; asking for too few only makes a proposal shorter


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A proposal as bytes: where the drafter's tokens end in them, and the target's special token that follows."""

    data: bytes
    ends: tuple[int, ...]
    confidence: tuple[float, ...]
    ended: bool  # a special token follows, known to the target or not
    special: int | None = None

    def without(self, count: int) -> Suggestion:
        """What follows the first `count` bytes."""
        ends = tuple(end - count for end in self.ends if end > count)
        confidence = self.confidence[len(self.ends) - len(ends) :]
        return Suggestion(self.data[count:], ends, confidence, self.ended, self.special)


class RetokenizeBridge:
    """Joins one session of a drafter to a target with another tokenizer."""

    def __init__(self, drafter: Vocabulary, target: Vocabulary, drafter_facts: Facts, target_facts: Facts) -> None:
        self._drafter = drafter
        self._target = target
        self._drafter_specials = drafter_facts.specials
        self._target_specials = target_facts.specials
        self._drafter_cutter = None if is_bytes(drafter) else Cutter(drafter, drafter_facts.anchor or "")
        self._target_cutter = None if is_bytes(target) else Cutter(target, target_facts.anchor or "")
        self._begun = False
        self._committed: list[int] = []  # the last target ids of the current text
        self._given: list[int] = []  # the last drafter ids of it
        self._held = b""  # what the drafter was not given yet
        self._bounds: set[int] = set()  # where target ids begin and end in it

    def drafter_ids(self, k: int) -> int:
        """How many drafter ids should make `k` target ids and the one that is cut off."""
        return BYTES_PER_TOKEN * (k + 1) if self._drafter_cutter is None else k + 2

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        given, ids = self._open(target_ids)
        for token in ids:
            if self._target.special(token):
                given += self._end_text(token)
            else:
                self._take(token)
        given += self._give(final=False)
        self._committed = self._committed[-CONTEXT:]
        return given

    def to_target(self, proposal: Proposal) -> Proposal:
        suggestion = self._read(proposal)
        if not suggestion.data.startswith(self._held):
            return EMPTY
        suggestion = suggestion.without(len(self._held))
        cut = self._cut_for_target(suggestion.data)
        if cut is None:
            return EMPTY
        complete = not suggestion.data or cut.ends[-1:] == (len(suggestion.data),)
        if not (suggestion.ended and complete):
            return self._proposal(self._settled(cut, suggestion), suggestion)
        return self._proposal(cut, suggestion, suggestion.special)

    def _open(self, ids: Sequence[int]) -> tuple[list[int], Sequence[int]]:
        if self._begun or not ids:
            return [], ids
        self._begun = True
        begins, covered = opening(self._drafter.pin, self._target.pin, ids[0])
        return begins, ids[1:] if covered else ids

    def _take(self, token: int) -> None:
        piece = self._target.piece(token)
        if piece:
            self._bounds.add(len(self._held))
            self._held += piece
            self._bounds.add(len(self._held))
            self._committed.append(token)

    def _end_text(self, special: int) -> list[int]:
        """The rest of the text, whatever it ends with, and the drafter's own special token."""
        given = self._give(final=True)
        self._committed, self._given, self._held, self._bounds = [], [], b"", set()
        counterpart = self._drafter_specials.get(self._target.piece(special))
        return given if counterpart is None else [*given, counterpart]

    def _give(self, *, final: bool) -> list[int]:
        """The drafter ids that are settled; with `final` all of them."""
        if not self._held:
            return []
        if self._drafter_cutter is None:
            ids, rest = list(self._held), b""
        else:
            ids, rest = self._cut_for_drafter(self._drafter_cutter, final)
        gone = len(self._held) - len(rest)
        self._held = rest
        self._bounds = {bound - gone for bound in self._bounds if bound >= gone}
        self._given = [*self._given, *ids][-CONTEXT:]
        return ids

    def _cut_for_drafter(self, cutter: Cutter, final: bool) -> tuple[list[int], bytes]:
        """Drafter ids of what is held, and the bytes that stay held."""
        text, incomplete = _whole_text(self._held)
        data = text.encode()
        cut = cutter.after(self._given, data) or cutter.after((), data)
        if cut is None:
            return self._normalized(text), incomplete
        if len(data) + len(incomplete) != len(self._held):  # broken bytes: what is held could not be told from them
            return list(cut.ids), incomplete
        if not final and cut.ids and not _is_settled(data, cut.last, self._bounds):
            cut = _at_a_character(cut.first(len(cut.ids) - 1), data)
        return list(cut.ids), self._held[cut.ends[-1] if cut.ends else 0 :]

    def _normalized(self, text: str) -> list[int]:
        """What a drafter makes of a text that it does not spell as it is; there is no byte to align on in it."""
        try:
            return self._drafter.encode(text)
        except RequestError:
            return []

    def _read(self, proposal: Proposal) -> Suggestion:
        """The proposal's bytes, up to its first special or impossible id."""
        pieces: list[bytes] = []
        ended, special = False, None
        for token in proposal.tokens:
            if type(token) is not int or not 0 <= token < self._drafter.pin.n_vocab:
                break
            if self._drafter.special(token):
                ended, special = True, self._target_specials.get(self._drafter.piece(token))
                break
            pieces.append(self._drafter.piece(token))
        ends = tuple(accumulate(map(len, pieces)))
        return Suggestion(b"".join(pieces), ends, proposal.confidence, ended, special)

    def _cut_for_target(self, data: bytes) -> Cut | None:
        if self._target_cutter is None:
            return Cut(tuple(data), tuple(range(1, len(data) + 1)))
        return self._target_cutter.after(self._committed, data) if data else NOTHING

    def _settled(self, cut: Cut, suggestion: Suggestion) -> Cut:
        """Without a last token that more text could merge."""
        if not cut.ids or self._target_cutter is None:
            return cut
        known = {0, *suggestion.ends} if self._drafter_cutter is not None else ()  # bytes know nothing of words
        return cut if _is_settled(suggestion.data, cut.last, known) else cut.first(len(cut.ids) - 1)

    def _proposal(self, cut: Cut, suggestion: Suggestion, special: int | None = None) -> Proposal:
        ids, ends = cut.ids, cut.ends
        confidence = _confidence(ends, suggestion)
        if special is None:
            return Proposal(ids, confidence)
        at = len(suggestion.ends)
        if len(confidence) == len(ids) and at < len(suggestion.confidence):
            confidence = (*confidence, suggestion.confidence[at])
        return Proposal((*ids, special), confidence)


def _is_settled(data: bytes, last: tuple[int, int], boundaries: Container[int]) -> bool:
    """Whether the last token, `data[begin:end]`, is one on the other side too, and not just blanks."""
    begin, end = last
    return begin in boundaries and end in boundaries and bool(data[begin:end].strip(_BLANKS))


def _at_a_character(cut: Cut, data: bytes) -> Cut:
    """Fewer ids where they would end inside a character, so that what stays held begins with a whole one."""
    count = len(cut.ids)
    while count and data[cut.ends[count - 1]] & 0xC0 == 0x80:  # a continuation byte follows
        count -= 1
    return cut.first(count)


def _whole_text(data: bytes) -> tuple[str, bytes]:
    """`data` as text without its broken bytes, and the bytes at its end that may yet become a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]


def _confidence(ends: Sequence[int], suggestion: Suggestion) -> tuple[float, ...]:
    """For every target token the product over the drafter's tokens that begin in it, as far as all are known.

    A drafter's token that spans several of the target's counts once, in the first: given that one, the others follow.
    """
    found: list[float] = []
    used = 0
    for end in ends:
        begun = used
        while begun < len(suggestion.ends) and _start(suggestion.ends, begun) < end:
            begun += 1
        if begun > len(suggestion.confidence):
            break
        found.append(prod(suggestion.confidence[used:begun]))
        used = begun
    return tuple(found)


def _start(ends: Sequence[int], i: int) -> int:
    return ends[i - 1] if i else 0


def open_bridge(drafter: Vocabulary, target: Vocabulary) -> Bridge | None:
    """A bridge between any two vocabularies that spell text byte by byte."""
    facts = facts_of(drafter), facts_of(target)
    if any(fact.anchor is None for fact in facts):
        return None
    return RetokenizeBridge(drafter, target, *facts)


@hookimpl
def pilotfish_register_bridges(register: Callable[[str, BridgeFactory], None]) -> None:
    register(NAME, open_bridge)
