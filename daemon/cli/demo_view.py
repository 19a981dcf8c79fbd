"""What `pilotfish demo` shows while a prompt is answered: both answers as they grow, accepted drafts coloured, and
how fast each of them comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pilotfish.daemon.cli.console import harmless
from pilotfish.daemon.lab.demonstration import Comparison
from pilotfish.daemon.lab.workloads import Mode, Workload

DRAFTED = "green"  # how accepted drafts look
LINES = 10  # of an answer that are shown, its last ones
WIDTH = 58  # cells of a panel
BAR = 40  # cells of the faster rate's bar


@dataclass(slots=True)
class Side:
    """One of the two answers: its pieces with whether they were drafted, and when they came (seconds)."""

    title: str
    pieces: list[tuple[str, bool]] = field(default_factory=list)
    tokens: int = 0
    began: float | None = None  # when the first piece came
    latest: float = 0.0
    measured: float | None = None  # tokens per second, once the server has said it

    @property
    def rate(self) -> float:
        """Tokens per second so far, as the reader sees them."""
        if self.measured is not None:
            return self.measured
        if self.began is None or self.latest <= self.began:
            return 0.0
        return (self.tokens - 1) / (self.latest - self.began)

    def panel(self) -> Panel:
        """The end of the answer."""
        text = Text()
        for piece, drafted in self.pieces:
            text.append(harmless(piece), style=DRAFTED if drafted else "")
        lines = text.split("\n", allow_blank=True)
        shown = Text("\n").join(lines[-LINES:])
        return Panel(shown, title=self.title, height=LINES + 2, width=WIDTH)


class DemoView:
    """A `Watcher` that can be rendered at any time. `clock` is in seconds."""

    def __init__(self, jobs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs, self._clock = jobs, clock
        self._done = 0
        self._title = ""
        self._sides: dict[bool, Side] = {}
        self._speculate = False
        self._best: tuple[float, RenderableType] = (0.0, "")

    def begin(self, workload: Workload, mode: Mode, speculate: bool) -> None:
        title = f"{workload.name}, {mode.name}"
        if title != self._title:
            self._title = title
            self._sides = {False: Side("plain"), True: Side(f"with drafts, accepted ones [{DRAFTED}]coloured[/]")}
        self._speculate = speculate

    def hear(self, text: str, drafted: int) -> None:
        side = self._sides.get(self._speculate)
        if side is None or not text:
            return
        side.latest = self._clock()
        if side.began is None:
            side.began = side.latest
        side.pieces.append((text, drafted > 0))
        side.tokens += max(1, drafted)

    def compared(self, comparison: Comparison) -> None:
        self._done += 1
        self._sides[False].measured, self._sides[True].measured = comparison.plain_tps, comparison.speculative_tps
        if comparison.ratio > self._best[0]:
            sides = {which: replace(side) for which, side in self._sides.items()}
            self._best = comparison.ratio, self._rendered(self._title, sides)

    @property
    def best(self) -> RenderableType:
        """How it looked at the end of the prompt that gained most."""
        return self._best[1]

    def __rich__(self) -> RenderableType:
        return self._rendered(f"{self._done + 1} of {self._jobs}: {self._title}", self._sides)

    def _rendered(self, title: str, sides: dict[bool, Side]) -> RenderableType:
        if not sides:
            return Text("loading the model")
        columns = Table.grid(padding=(0, 1))
        columns.add_row(*(sides[speculate].panel() for speculate in (False, True)))
        return Group(Text(title, style="bold"), columns, _rates(sides))


def _rates(sides: dict[bool, Side]) -> Table:
    """The two rates as bars, one below the other."""
    fastest = max(side.rate for side in sides.values()) or 1.0
    bars = Table.grid(padding=(0, 1))
    for speculate, name in ((False, "plain"), (True, "with drafts")):
        rate = sides[speculate].rate
        style = DRAFTED if speculate else ""
        bars.add_row(name, Text("█" * round(BAR * rate / fastest), style=style), f"{rate:.0f} tokens/s" if rate else "")
    return bars
