"""A diagnosis for people: what it comes to first, then what was compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from pilotfish.daemon.certify.lanes import ranges
from pilotfish.daemon.cli.console import out

if TYPE_CHECKING:
    from pilotfish.daemon.lab.diagnose.diagnosis import Diagnosis, Parting, PastFound


def show(found: Diagnosis, output: Path | None) -> None:
    """Print it."""
    for line in conclusion(found):
        out.print(line, style=f"bold {_colour(found)}", markup=False, soft_wrap=True)
    for line in _details(found):
        out.print(line, markup=False, soft_wrap=True)
    if found.pasts:
        out.print(_table(found))
    if found.minimal is not None:
        out.print(_reproduction(found, output), markup=False, soft_wrap=True)
    for note in found.notes:
        out.print(f"note: {note}", style="dim", markup=False, soft_wrap=True)


def _colour(found: Diagnosis) -> str:
    if found.differs:
        return "red"
    return "green" if found.complete else "yellow"


def conclusion(found: Diagnosis) -> Iterator[str]:
    """What it comes to, in a line or two."""
    yield from (fault.what for fault in found.faults)
    if found.parting is not None:
        yield f"first difference: {_parted(found, found.parting)}, {_between(found)}"
        if decisive := found.decisive:
            equal = f"the rows of token {found.parting.row} are equal in spite of it"
            yield f"{equal}, those of token {decisive.row} are not: {_parted(found, decisive)}"
    elif found.minimal is not None:
        yield f"the rows differ: {_between(found)}"
    elif len(found.classes) > 1:
        yield f"{_between(found)} agree, other widths do not: {_classes(found.classes)}"
    elif not found.differs and not found.complete:
        yield "incomplete: time ran out, and nothing differs in what there was time to compare"
    elif not found.differs:
        yield f"nothing differs: widths {ranges(found.tried)} give the same rows, however the history was written"
    elif not found.faults:
        yield "the rows are equal, the cells are not"


def _parted(found: Diagnosis, parting: Parting) -> str:
    layer = "" if parting.layer is None else f"layer {parting.layer}, "
    cells = f" over {len(found.asked.prefix) + parting.row} cells" if "ATTN" in parting.kind else ""
    return f"{layer}{parting.title}{cells}"


def _between(found: Diagnosis) -> str:
    plain, other = found.asked.plain, found.asked.other
    if plain.setting == other.setting:
        return f"widths {plain.width} and {other.width} in {plain.setting.title}"
    return f"width {plain.width} in {plain.setting.title} and width {other.width} in {other.setting.title}"


def _details(found: Diagnosis) -> Iterator[str]:
    asked = found.asked
    yield f"{found.model}, {found.engine}, after {len(asked.prefix)} ids"
    if parting := found.parting:
        row = f"token {parting.row} of the forward" if parting.row else "the pending token"
        yield f"{parting.name}: {parting.equal_before} operations before it are equal for {row}, bit for bit"
    for one in found.between:
        yield f"widths {one.widths[0]} and {one.widths[1]} part at {_parted(found, one.parting)}"
    if found.classes:
        yield f"widths with equal rows here: {_classes(found.classes)}"
    if asked.lane:
        yield f"widths of the lane: {ranges(asked.lane)}"


def _classes(classes: tuple[tuple[int, ...], ...]) -> str:
    return " | ".join(map(ranges, classes))


def _table(found: Diagnosis) -> Table:
    table = Table(title="each way to write the history", title_justify="left")
    for name in ("history", "widths with equal rows", "first row differs", "most off", "other choices", "cells"):
        table.add_column(name)
    for past in found.pasts:
        table.add_row(*_row(past, found.asked.plain.width))
    return table


def _row(past: PastFound, width: int) -> tuple[str, ...]:
    plain = next(scores for scores in past.scores if scores.width == width)
    offs = [scores.off for scores in past.scores if scores.off is not None]
    differ = [width for scores in past.scores if not scores.equal for width in _class_of(past, scores.width)]
    others = [w for scores in past.scores if scores.chosen != plain.chosen for w in _class_of(past, scores.width)]
    return (
        str(past.kind),
        _classes(past.classes),
        ranges(sorted(set(differ))) or "none",
        f"{max(offs):.3g}" if offs else "",
        f"widths {ranges(sorted(set(others)))}" if others else "none",
        f"differ: {past.cells}" if past.cells else "equal",
    )


def _class_of(past: PastFound, width: int) -> tuple[int, ...]:
    return next(group for group in past.classes if width in group)


def _reproduction(found: Diagnosis, output: Path | None) -> str:
    assert found.minimal is not None  # asked by the caller
    size = len(found.minimal.prefix)
    if output is None:
        return f"{size} ids are enough to see it; --output FILE keeps them"
    return f"{size} ids are enough to see it: {output}, also for pilotfish certify {found.model} --probe {output}"
