"""The check at load: which block widths give rows that are bit-equal to single steps, by real forwards.

For each of two context lengths a fixed random prefix is fed, then random ids follow it, once in single steps and once
in blocks of every candidate width, cutting back to the prefix in between. A width stays only if all its rows at both
lengths equal the single steps' rows bit for bit. The lengths lie below and above 256 cells, where ggml's attention
changes its code. Random ids separate classes of kernels better than text does.

A second question decides how far an earlier request's cache may be reused: are cells written by narrow decoding blocks
the same as cells written by prompt blocks?

Where windows end, where their ring of cells begins anew and beyond it is looked at as well, if there is time: their
layers run the same code there, over cells that stand elsewhere. Products with experts choose their code by how many
rows go to one of them, which ids decide: the longer length is looked at again with few ids, many times each.

Where one row alone differs from all wider forwards (ggml multiplies F32 matrices, as models with experts have them, in
another way from two rows on), and a second row costs nothing, plain steps are padded, and widths compared with those.
Where a file has such matrices that is taken for granted: what they add may be so little that it shows in one row of a
hundred (docs/lab-notes.md).

Nobody waits long for this. The first forwards say what a step takes, and what is compared is what takes BUDGET seconds
by that measure: all widths of a small model, the most useful ones of a larger one, the shorter length alone or one that
is shorter still, or nothing. On a busy machine it may take PATIENCE times as long, and then leaves out the rest. What
was not compared is not in the lane, and the reason says so. A model that other machines compute is given longer.

This is a check of minutes-old settings in seconds, not a certificate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pilotfish.hooks.errors import ConfigError, EngineError
from pilotfish.plugins._cells.context import CellContext, IdArray, Logits
from pilotfish.plugins._cells.lane_check_time import CELLS, SHORTEST, CheckTime, timed

LENGTHS = (64, 270)
EDGE = 256  # cells from which on only the longer length speaks
ROWS = 16  # single steps to compare with, where a block needs fewer
BUDGET = 2.0  # seconds of a quiet machine; what the first forward waits for weights from a disk comes on top
BUDGET_VARIABLE = "PILOTFISH_CHECK_SECONDS"
NOT_BACK = "a state that is written back does not give the rows that it gave before"
ALONE = "its matrices of floats are multiplied in another way for one row alone"
PADDED = 2  # rows of a plain step where one alone differs from all wider forwards
PAD_MOST = 1.05  # of a single step is what a padded one may take: experts of a repeated token are read once
PAD_TURNS = 4
_SEED = 11


@dataclass(frozen=True, slots=True)
class LaneCheck:
    """`widths` begins with 1, or with PADDED where plain steps have to be padded. `exact_cache`: cells do not depend on
    the block that wrote them.

    Beyond `max_context` cells nothing was compared. `complete` is False when something was left out for want of time
    that another try may have, so that the result is not worth remembering. `different` are the widths whose rows were
    seen to differ; `mixed` says that cells were seen to depend on the block that wrote them.
    """

    widths: tuple[int, ...]
    exact_cache: bool
    reason: str
    complete: bool = True
    max_context: int | None = None
    different: tuple[int, ...] = ()
    mixed: bool = False

    def told_by(self, part: LaneCheck) -> LaneCheck:
        """What is left of `part`, which looked at more of a part of this model, beside what was seen here."""
        if self.widths[0] != 1:  # what was compared with padded steps says nothing of others
            return self
        if part.widths[0] != 1:
            return part if len(self.widths) == 1 else self
        widths = tuple(width for width in part.widths if width not in self.different)
        reason = "; ".join(filter(None, (part.reason, self.reason if self.different or self.mixed else "")))
        exact = part.exact_cache and not self.mixed and len(widths) > 1
        return replace(part, widths=widths, exact_cache=exact, reason=reason)


def check(
    context: CellContext,
    candidates: Collection[int],
    *,
    budget: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    experts: bool = False,
    alone: bool = False,
    afar: bool = False,
    hurried: bool = False,
    padding_pays: Callable[[], bool] | None = None,
) -> LaneCheck:
    """Try the candidate widths in `budget` seconds. Leaves the cache empty. Raises EngineError.

    With `alone` one row is taken to be computed in another way than several, whatever a comparison shows; with `afar`
    the budget is longer where forwards are, see `CheckTime`. `hurried` halves it where it is not enough for
    everything. `padding_pays` says so for a context that is a part of the model: what it costs the whole tells.
    """
    lengths = [length for length in LENGTHS if length + max(ROWS, *candidates) <= context.cells]
    if len(lengths) < len(LENGTHS) and context.cells > EDGE:
        return LaneCheck((1,), False, f"a context of {context.cells} tokens leaves no room for the check")
    context.clear()
    try:
        seconds = allowed_seconds() if budget is None else budget
        checking = _Check(context, max(ROWS, *candidates), lengths, seconds, clock, experts=experts, afar=afar)
        checking.hurried, checking.padding_pays = hurried, padding_pays or checking.padding_pays
        return checking.run(candidates, alone=alone)
    finally:
        context.clear()


def allowed_seconds() -> float:
    """What a check may take on a quiet machine. Raises ConfigError."""
    text = os.environ.get(BUDGET_VARIABLE, "")
    try:
        return max(0.0, float(text or BUDGET))
    except ValueError:
        raise ConfigError(f"{BUDGET_VARIABLE}: expected a number of seconds, got {text!r}") from None


def padding_pays(context: CellContext, clock: Callable[[], float], until: float) -> bool:
    """Whether padded steps take what single ones do, timed until then. Clears the cache. Raises EngineError."""
    id = np.zeros(1, np.int32)
    context.clear()
    padded = single = float("inf")
    for turn in range(PAD_TURNS):
        if turn and clock() >= until:
            break
        single = min(single, timed(context, lambda: context.step(0), clock))
        padded = min(padded, timed(context, lambda: context.forward(id, PADDED), clock))
    context.clear()
    return padded <= PAD_MOST * single


def cells_agree(context: CellContext, widths: Sequence[int]) -> bool:
    """Whether a plain step after the shorter length is the same where blocks of the widest wrote the last cells.

    `widths` are a lane's. Clears the cache. Raises EngineError.
    """
    length, base = LENGTHS[0], widths[0]
    ids = np.random.default_rng(_SEED).integers(0, context.n_vocab, length + base, dtype=np.int32)

    def row() -> Logits:
        context.forward(ids[length:], base)
        return context.row(0).copy()

    context.clear()
    for at in range(0, length, context.block):
        context.feed(ids[at : min(at + context.block, length)])
    expected = row()
    if not context.cut(length - CELLS):
        raise EngineError(f"{context.name}: its memory could not be brought back to {length - CELLS} tokens")
    for at in range(length - CELLS, length, widths[-1]):
        block = ids[at : min(at + widths[-1], length)]
        context.forward(block, len(block))
    same = np.array_equal(row(), expected)
    context.clear()
    return same


def _use(width: int) -> tuple[bool, int]:
    """A sort key, the most useful first: from powers of two the next narrower width is never far."""
    return width & (width - 1) != 0, width


class _Row(NamedTuple):
    """A row, and what was computed for its token, where the context tells that."""

    logits: Logits
    told: bytes


class _Check(CheckTime):
    def __init__(
        self,
        context: CellContext,
        rows: int,
        lengths: Sequence[int],
        budget: float,
        clock: Callable[[], float],
        *,
        experts: bool,
        afar: bool,
    ) -> None:
        places = [place for place in context.memory.places if LENGTHS[-1] < place <= context.cells - rows]
        ids = np.random.default_rng(_SEED).integers(0, context.n_vocab, max(*LENGTHS, *places) + rows, dtype=np.int32)
        self._experts, self._base, self._places = experts, 1, sorted(places)
        self._rewritten: Sequence[int] = ()  # lengths at which cells are compared, too
        self._reasons: list[str] = []
        self._untried: set[int] = set()
        self._exact: bool | None = None  # None: it was not found out
        self._differing: set[int] = set()
        self.hurried = False
        self.padding_pays: Callable[[], bool] = lambda: padding_pays(context, clock, self._deadline)
        super().__init__(context, ids, rows, lengths, budget, clock, afar=afar)

    def run(self, candidates: Collection[int], *, alone: bool) -> LaneCheck:
        found = LaneCheck((1,), False, ALONE) if alone else self._tried(sorted(candidates, key=_use))
        wider = sorted((width for width in candidates if width > PADDED), key=_use)
        if found.widths != (1,) or self._untried or not wider or self._context.memory.restores:
            return found
        if not self.padding_pays():
            return found
        self._base, self._reasons, self._exact = PADDED, [f"width 1 differs from all: padded to {PADDED}"], None
        self._begin()
        padded = self._tried(wider)
        return padded if len(padded.widths) > 1 else found

    def _tried(self, widths: list[int]) -> LaneCheck:
        """Those of `widths` whose rows are the base's."""
        if self._estimate(widths):
            self._feed_prefix(SHORTEST)  # which says what longer ones take
        if self.hurried and len(self._affordable(widths, self._lengths)) < len(widths):
            self.hurried = False
            self._hurry()
        chosen, planned = self._plan(widths)
        self._rewritten = planned if planned == self._lengths else ()
        self._untried.update(set(widths) - set(chosen))
        compared = 0
        for i, length in enumerate(planned):
            if not chosen or self._left(planned[i:]) <= 0:
                break
            self._feed_prefix(length)
            kept, different = self._at(length, chosen, self._share(planned, chosen), self._left(planned[i:]))
            chosen = [width for width in chosen if width not in different]
            if compared and chosen and not kept:
                break  # no time: what the length before has shown is worth more than nothing
            self._untried.update(set(chosen) - set(kept))
            chosen, compared = kept, i + 1
        if chosen and (compared < len(self._lengths) or planned[0] == SHORTEST):
            return self._found_below_the_edge(chosen, compared)
        chosen = self._elsewhere(chosen)
        return self._found(chosen, exact=bool(self._exact and chosen))

    def _elsewhere(self, chosen: list[int]) -> list[int]:
        """Those that survive where windows and experts make a difference, as far as there is time to look."""
        if self._experts and chosen and self._affordable_at(self._context.size, chosen):
            random = self._ids.copy()
            self._ids[self._context.size :] %= 2  # two ids
            chosen = self._survivors(self._context.size, chosen)
            self._ids = random
        for place in self._places:
            if chosen and self._affordable_at(place, chosen):
                self._feed_prefix(place)
                chosen = self._survivors(place, chosen)
        return chosen

    def _survivors(self, length: int, widths: list[int]) -> list[int]:
        _, different = self._at(length, widths, self._budget, self._budget)
        return [width for width in widths if width not in different]

    def _estimate(self, widths: Sequence[int]) -> bool:
        """Time a few steps, and more where they were so slow that none of the rest would fit: they may have been
        disturbed. Whether anything fits. Leaves the cache empty."""
        timed, first = 0, (SHORTEST,)
        while not timed or ((timed < 3 or not self._affordable(widths, first)) and self._may_estimate()):
            self._seen(self._timed_step())
            timed += 1
            self._used = (1 + timed) * self._step
        self._context.clear()
        return bool(self._affordable(widths, first))

    def _found_below_the_edge(self, widths: Collection[int], compared: int) -> LaneCheck:
        if not compared:
            self._untried.update(widths)
            return self._found([], exact=False)
        self._reasons.append(f"no time to compare beyond {EDGE} tokens")
        return self._found(widths, exact=False, max_context=EDGE)

    def _found(self, widths: Collection[int], *, exact: bool, max_context: int | None = None) -> LaneCheck:
        if self._untried:
            self._reasons.append(f"no time to try width {_list(self._untried)}")
        complete = not self._untried and max_context is None and (self._exact is not None or not widths)
        reason, settled = "; ".join(self._reasons), self._settled
        return LaneCheck(
            (self._base, *sorted(widths)),
            exact,
            reason,
            complete or settled,
            max_context,
            tuple(sorted(self._differing)),
            self._exact is False,
        )

    def _at(self, length: int, widths: Sequence[int], wanted: float, allowed: float) -> tuple[list[int], set[int]]:
        """The widths that survive one length, whose prefix is fed, and those that do not. Leaves the prefix.

        The first block of each takes `allowed` seconds at most; blocks after it are compared for `wanted` seconds.
        """
        started = self._clock()
        enough, until = started + wanted, started + allowed
        rows = max(ROWS, *widths)
        rows = rows if self._rows_price(widths, rows) <= wanted else max(widths)
        single = self._base_rows(length, rows, started + allowed / 2)
        if self._context.memory.restores and not self._comes_back(length, single[0].logits):
            self._reasons.append(NOT_BACK)
            return [], set(widths)
        kept, different = [], set()
        for width in widths:
            if width <= len(single) and self._time_for(self._price(width), until):
                same = self._same_rows(length, width, single[:width], until)
                kept.append(width) if same else different.add(width)
        for width in kept:
            if self._time_for(2 * self._price(width), enough) and not self._same_rows(length, width, single, enough):
                different.add(width)
        self._differing |= different
        if different:
            steps = "single steps" if self._base == 1 else f"width {self._base}"
            self._reasons.append(f"width {_list(different)} differs from {steps} after {length} tokens")
        kept = [width for width in kept if width not in different]
        if kept and length in self._rewritten and self._exact is not False:  # at one length they may be alike by chance
            self._exact = self._same_cells(length, max(kept), single[0], until)
        self._back(length)
        return kept, different

    def _feed_prefix(self, length: int) -> None:
        """After that of the length before: prompt blocks of 64 and 206, or shorter, then stand for any."""
        started, first = self._clock(), self._context.size
        ends = (length - CELLS, length) if self._context.memory.running and length > CELLS else (length,)
        for end in ends:
            while (at := self._context.size) < end:
                self._context.feed(self._ids[at : min(at + self._context.block, end)])
            self._context.mark()
        if first < length:
            self._context.wait()
            self._token = min(self._token, (self._clock() - started) / (length - first))

    def _back(self, length: int) -> None:
        if not self._context.cut(length):
            raise EngineError(f"{self._context.name}: its memory could not be brought back to {length} tokens")

    def _comes_back(self, length: int, expected: Logits) -> bool:
        """Whether the prefix's state, written back, gives the row that it gave. Leaves it with the step after it."""
        self._back(length)
        self._forward_base(self._ids[length : length + 1])
        return np.array_equal(self._context.row(0), expected)

    def _base_rows(self, length: int, rows: int, until: float) -> list[_Row]:
        found: list[_Row] = []
        while len(found) < rows and (not found or self._time_for(self._step, until)):
            at = length + len(found)
            self._forward_base(self._ids[at : at + self._base])
            found += [_Row(self._context.row(i).copy(), self._context.told(i)) for i in range(self._base)]
        return found

    def _forward_base(self, ids: IdArray) -> None:
        if self._base == 1:
            self._context.step(int(ids[0]))
        else:
            self._context.forward(ids, self._base)

    def _same_rows(self, length: int, width: int, single: Sequence[_Row], until: float) -> bool:
        """Of the first block, and of those after it for which there is time."""
        self._back(length)
        for at in range(0, len(single) - width + 1, width):
            if at and not self._time_for(self._price(width), until):
                break
            self._context.forward(self._ids[length + at : length + at + width], width)
            if not all(self._is(i, single[at + i]) for i in range(width)):
                return False
        return True

    def _is(self, i: int, expected: _Row) -> bool:
        return self._context.told(i) == expected.told and np.array_equal(self._context.row(i), expected.logits)

    def _same_cells(self, length: int, width: int, expected: _Row, until: float) -> bool | None:
        """Write the prefix's last CELLS cells in blocks of `width`; the single step after it must not notice."""
        if not self._time_for(self._cells_price(width), until):
            self._reasons.append("no time to compare cells")
            return None
        start = length - CELLS
        self._back(start)
        for at in range(start, length, width):
            if not self._time_for(0.0, until):
                self._reasons.append("no time to compare cells")
                self._feed_prefix(length)
                return None
            block = self._ids[at : min(at + width, length)]
            self._context.forward(block, len(block))
        self._context.mark()
        self._forward_base(self._ids[length : length + 1])
        same = self._is(0, expected)
        if not same:
            self._reasons.append(f"cells written by narrow blocks differ after {length} tokens")
        return same


def _list(widths: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(widths)))
