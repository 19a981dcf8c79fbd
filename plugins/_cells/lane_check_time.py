"""What the check at load has time for, by what its own forwards take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from pilotfish.plugins._cells.context import CellContext, IdArray

SHORTEST = 16  # tokens instead of the shorter length, for models too large for it
CELLS = 32  # rewritten in narrow blocks for the second question; at 270 tokens one of them straddles cell 256
PATIENCE = 6.0  # times the budget, on a busy machine
HURRY = 0.5  # of the budget is for a model of which a part tells the rest
STEPS_AFAR = 200.0  # of a model on other machines: all that a check compares takes so many steps, by the prices here
MOST_AFAR = 60.0  # seconds of budget, however long such a step takes
PATIENCE_AFAR = 3.0
ROW = 0.35  # steps that one more row of a block takes: 0.2 to 0.35 where it was measured


def timed(context: CellContext, forward: Callable[[], None], clock: Callable[[], float]) -> float:
    """Seconds of a forward in `context`."""
    started = clock()
    forward()
    context.row(0)  # waits for the computation where the device works on its own
    return clock() - started


class CheckTime:
    """Of forwards in `context`, for comparisons of `rows` rows at `lengths` tokens within `budget` seconds. Begins with
    the first forward, which may wait for weights from a disk.

    `afar`: every forward waits for other machines, whatever its width. Loading there takes its time as well, and what
    is left out now is left out of every answer, so the budget is what STEPS_AFAR steps take, if that is more.
    """

    def __init__(
        self,
        context: CellContext,
        ids: IdArray,
        rows: int,
        lengths: Sequence[int],
        budget: float,
        clock: Callable[[], float],
        *,
        afar: bool = False,
    ) -> None:
        self._context, self._ids, self._rows, self._lengths, self._clock = context, ids, rows, lengths, clock
        self._timed_step()
        self._budget = self._least = budget
        self._afar = afar
        self._used = 0.0  # seconds of it, undisturbed, that the estimate took
        # seconds, undisturbed, of a single step and of a prompt's token
        self._step = self._token = float("inf")
        self._begin()

    def _begin(self) -> None:
        """The budget counts from now on."""
        self._started = self._clock()
        self._deadline = self._started + PATIENCE * self._budget

    def _hurry(self) -> None:
        """A part of the model tells the rest: less is to be spent on the whole."""
        self._budget *= HURRY
        self._deadline = self._started + PATIENCE * self._budget

    def _seen(self, step: float) -> None:
        """A single step took so long."""
        self._step = min(self._step, step)
        self._token = ROW * self._step
        if self._afar:
            self._budget = max(self._least, min(STEPS_AFAR * self._step, MOST_AFAR))
            self._deadline = self._started + max(PATIENCE * self._least, PATIENCE_AFAR * self._budget)

    @property
    def _settled(self) -> bool:
        """Whether another try would have no more time than this one, which nothing has disturbed."""
        return self._afar and self._budget >= MOST_AFAR and self._clock() - self._started <= self._budget

    def _may_estimate(self) -> bool:
        return self._time_for(2 * self._step, self._started + self._budget)  # one for the first forward

    def _plan(self, widths: Sequence[int]) -> tuple[list[int], Sequence[int]]:
        """The widths that there is time for, at all lengths, at the first or at a shorter one."""
        for planned in (self._lengths, self._lengths[:1], (SHORTEST,)):
            if chosen := self._affordable(widths, planned):
                return chosen, planned
        return [], []

    def _share(self, lengths: Sequence[int], widths: Sequence[int]) -> float:
        """Seconds for the rows of `widths` at each of the lengths, on a quiet machine."""
        cells = len(lengths) * self._cells_price(max(widths)) if lengths == self._lengths else 0.0
        return (self._budget - self._used - self._token * lengths[-1] - cells) / len(lengths)

    def _left(self, lengths: Sequence[int]) -> float:
        """Seconds until patience ends, for each of the lengths that are left."""
        prefixes = self._token * (lengths[-1] - self._context.size)
        return (self._deadline - self._clock() - prefixes) / len(lengths)

    def _affordable(self, widths: Iterable[int], lengths: Sequence[int]) -> list[int]:
        found: list[int] = []
        for width in widths:
            trial = [*found, width]
            if self._rows_price(trial, max(trial)) <= self._share(lengths, trial):
                found = trial
        return found

    def _affordable_at(self, length: int, widths: Sequence[int]) -> bool:
        """Whether it fits into what is left of the budget."""
        rows = self._rows_price(widths, self._rows)
        return self._time_for(self._token * (length - self._context.size) + rows, self._started + self._budget)

    def _rows_price(self, widths: Collection[int], singles: int) -> float:
        """Seconds that so many single steps and a block of each width may take."""
        return singles * self._step + sum(map(self._price, widths))

    def _cells_price(self, width: int) -> float:
        """Seconds that rewriting cells in blocks of `width` may take, and the step after them."""
        return self._price(width) * CELLS / width + self._step

    def _price(self, width: int) -> float:
        """Seconds that a block of `width` may take."""
        return self._step * (1 + ROW * (width - 1))

    def _timed_step(self) -> float:
        return self._timed(lambda: self._context.step(int(self._ids[self._context.size])))

    def _timed(self, forward: Callable[[], None]) -> float:
        return timed(self._context, forward, self._clock)

    def _time_for(self, seconds: float, until: float) -> bool:
        return self._clock() + seconds <= until
