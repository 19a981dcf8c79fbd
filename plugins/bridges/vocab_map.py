"""The bridge between two vocabularies that are nearly the same: ids are mapped one by one, by their exact bytes.

An id maps if the other side has one of equal bytes; a special one only to a special one of equal text. A proposal ends
at the first id that the target lacks.

**When it opens.** When 90% of the target's tokens in a sample text are the drafter's too, cut at the same places: a
drafter then meets an id that it cannot map once in ten tokens. Variants of one family lie near 100%; different
families (SmolLM2, Qwen3, Gemma3, in any direction) lie between 63% and 80%, and get more out of cutting text anew. A
vocabulary that cannot spell the sample is judged by its ids alone, weighed by 1 / rank, because vocabularies list
frequent ones first; 80% are asked for then.

**History that the drafter lacks an id for** is spelt in its own ids: as its tokenizer cuts those bytes, or byte by byte
when they are no whole characters. What it cannot spell, and special ids it does not have, it does not see.

**Several ids of equal bytes** (a letter, and the byte of the same value) all map to the id that the other side's
tokenizer itself gives for them, or to the lowest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.coverage import text_coverage
from pilotfish.hooks.protocols import Bridge, BridgeFactory, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import Proposal, TokenizerPin
from pilotfish.plugins.bridges._cutting import Cutter, anchor_of
from pilotfish.plugins.bridges._facts import Kept, opening

log = logging.getLogger("pilotfish.bridges")

NAME = "vocab_map"
MIN_TEXT_COVERAGE = 0.9
MIN_RANKED_COVERAGE = 0.8

Ids = npt.NDArray[np.int32]
_UNMAPPED = -1


@dataclass(frozen=True, slots=True)
class Table:
    """Ids by ids, -1 where there is none: `to_target: (drafter's n_vocab,)`, `to_drafter: (target's n_vocab,)`.

    `bytes`: the drafter's id of every single byte, -1 where it has none. `spelt` collects how target ids without a
    counterpart are written in drafter ids.
    """

    to_target: Ids
    to_drafter: Ids
    bytes: Ids
    anchor: str | None
    spelt: dict[int, tuple[int, ...]] = field(default_factory=dict)


class VocabMapBridge:
    """Maps the ids of one session."""

    def __init__(self, table: Table, drafter: Vocabulary, target: Vocabulary) -> None:
        self._table = table
        self._drafter = drafter
        self._target = target
        self._begun = False

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        given: list[int] = []
        if target_ids and not self._begun:
            self._begun = True
            given, covered = opening(self._drafter.pin, self._target.pin, target_ids[0])
            target_ids = target_ids[1:] if covered else target_ids
        for token, mapped in zip(target_ids, _looked_up(self._table.to_drafter, target_ids), strict=True):
            if mapped != _UNMAPPED:
                given.append(mapped)
            else:
                given += self._spell(token)
        return given

    def to_target(self, proposal: Proposal) -> Proposal:
        table = self._table.to_target
        ids: list[int] = []
        for token in proposal.tokens:
            if type(token) is not int or not 0 <= token < len(table) or table[token] == _UNMAPPED:
                break
            ids.append(int(table[token]))
        return Proposal(tuple(ids), proposal.confidence[: len(ids)])

    def _spell(self, token: int) -> tuple[int, ...]:
        """A target id that the drafter lacks, in the drafter's ids."""
        spelt = self._table.spelt
        if token not in spelt:
            special = self._target.special(token)
            spelt[token] = () if special else self._spell_bytes(self._target.piece(token))
        return spelt[token]

    def _spell_bytes(self, data: bytes) -> tuple[int, ...]:
        if self._table.anchor is not None:
            cut = Cutter(self._drafter, self._table.anchor).after((), data)
            if cut is not None and cut.ends[-1:] == (len(data),):
                return cut.ids
        single: list[int] = self._table.bytes[list(data)].tolist()
        return () if _UNMAPPED in single else tuple(single)


def _looked_up(table: Ids, ids: Sequence[int]) -> list[int]:
    found: list[int] = table[np.asarray(ids, np.int64)].tolist()
    return found


@dataclass(frozen=True, slots=True)
class _Listing:
    """A vocabulary's pieces by id, and the id that stands for a piece, special ones apart."""

    pieces: list[bytes]
    special: list[bool]
    ordinary: Mapping[bytes, int]
    specials: Mapping[bytes, int]

    def counterparts(self, other: _Listing) -> Ids:
        """For each id of this listing the other's id of equal bytes."""
        found = (
            (other.specials if special else other.ordinary).get(piece, _UNMAPPED)
            for piece, special in zip(self.pieces, self.special, strict=True)
        )
        return np.fromiter(found, np.int32, len(self.pieces))


def _list(vocabulary: Vocabulary) -> _Listing:
    count = vocabulary.pin.n_vocab
    pieces = [vocabulary.piece(token) for token in range(count)]
    special = [vocabulary.special(token) for token in range(count)]
    ordinary: dict[bytes, int] = {}
    specials: dict[bytes, int] = {}
    doubled: dict[bytes, set[int]] = {}
    for token, (piece, is_special) in enumerate(zip(pieces, special, strict=True)):
        if not piece:
            continue  # an id that stands for nothing
        first = (specials if is_special else ordinary).setdefault(piece, token)
        if first != token and not is_special:
            doubled.setdefault(piece, {first}).add(token)
    anchor = anchor_of(vocabulary) if doubled else None
    if anchor is not None:
        cutter = Cutter(vocabulary, anchor)
        for piece, ids in doubled.items():
            cut = cutter.after((), piece)
            if cut is not None and len(cut.ids) == 1 and cut.ids[0] in ids:
                ordinary[piece] = cut.ids[0]
    return _Listing(pieces, special, ordinary, specials)


def build_table(drafter: Vocabulary, target: Vocabulary) -> Table:
    """Look at every id of both: 1.1 s for SmolLM2 (49,152 ids) and Gemma3 (262,145)."""
    ours, theirs = _list(drafter), _list(target)
    single = np.array([ours.ordinary.get(bytes((value,)), _UNMAPPED) for value in range(256)], np.int32)
    return Table(ours.counterparts(theirs), theirs.counterparts(ours), single, anchor_of(drafter))


def ranked_coverage(table: Table) -> float:
    """The share of target ids that the drafter has, each weighed by 1 / (its rank, from 1)."""
    weights = 1.0 / np.arange(1, len(table.to_drafter) + 1)
    return float(weights[table.to_drafter != _UNMAPPED].sum() / weights.sum()) if len(weights) else 0.0


def _usable_table(drafter: Vocabulary, target: Vocabulary) -> Table | None:
    started = time.perf_counter()
    covered = text_coverage(drafter, target)
    if covered is not None and covered < MIN_TEXT_COVERAGE:
        return None
    table = build_table(drafter, target)
    if covered is None and ranked_coverage(table) < MIN_RANKED_COVERAGE:
        return None
    sizes = len(table.to_target), len(table.to_drafter)
    log.debug("mapping %d to %d ids took %.2f s to prepare", *sizes, time.perf_counter() - started)
    return table


_tables: Kept[tuple[TokenizerPin, TokenizerPin], Table | None] = Kept(8)


def open_bridge(drafter: Vocabulary, target: Vocabulary) -> Bridge | None:
    """A bridge if the vocabularies cover each other well enough. The table is built once for a pair."""
    table = _tables.get((drafter.pin, target.pin), lambda: _usable_table(drafter, target))
    return None if table is None else VocabMapBridge(table, drafter, target)


@hookimpl
def pilotfish_register_bridges(register: Callable[[str, BridgeFactory], None]) -> None:
    register(NAME, open_bridge)
