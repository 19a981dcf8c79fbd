"""What must hold before widths are worth comparing: forwards repeat themselves, what is cut is gone, rows do not see
what follows them, and looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pilotfish.daemon.lab.diagnose.diagnosis import Fault, FaultKind, PastKind
from pilotfish.daemon.lab.diagnose.replaying import HistoryReplay
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import InspectsForwards


def faults_of(replay: HistoryReplay, width: int) -> Iterator[Fault]:
    """What is wrong with forwards of `width` after the history. After a fatal one nothing more is looked for."""
    replay.build(PastKind.FRESH)
    first = _rows(replay, width)
    replay.back()
    if _rows(replay, width) != first:
        replay.build(PastKind.FRESH)
        yield _unsound(width, cut=_rows(replay, width) == first)
        return
    replay.back()
    if width > 1:
        yield from _peeking(replay, width, first)


def _unsound(width: int, *, cut: bool) -> Fault:
    """Why the same forward gave other rows: because of what was cut before, or for no reason."""
    if cut:
        what = f"cells that were cut stay: after {width} rejected tokens the same forward gives other rows"
        return Fault(FaultKind.UNCUT, what)
    what = f"forwards do not repeat themselves: the same one of {width} tokens gave other rows"
    return Fault(FaultKind.UNREPEATABLE, what)


def _rows(replay: HistoryReplay, width: int) -> list[bytes]:
    at = replay.start
    return replay.rows(replay.ids[at : at + width], width)


def _peeking(replay: HistoryReplay, width: int, first: list[bytes]) -> Iterator[Fault]:
    """Other proposals, from the first one on and from the middle: the rows before them must stay as they are."""
    for kept in sorted({1, (width + 1) // 2}):
        tokens = [*replay.ids[replay.start : replay.start + kept], *replay.junk][:width]
        rows = replay.rows(tokens, width)
        replay.back()
        if rows[:kept] != first[:kept]:
            what = f"proposals change the rows before them: other ids from number {kept} on, in a forward of {width}"
            yield Fault(FaultKind.PEEKING, what)
            return


def inspection_faults(replay: HistoryReplay, width: int) -> Iterator[Fault]:
    """A forward that is looked into gives the rows of one that is not, and the next one is as before."""
    if not isinstance(replay.probe, InspectsForwards):
        return
    replay.ready(PastKind.FRESH)
    first = _rows(replay, width)
    replay.back()
    try:
        trace = replay.probe.trace(replay.ids[replay.start : replay.start + width], width)
    except EngineError:  # one of another process that cannot
        return
    if list(trace.rows) != first:
        what = f"being looked into changes the rows of a forward of {width}: no operation can be named"
        yield Fault(FaultKind.INSPECTED, what)
    if _rows(replay, width) != first:
        yield Fault(FaultKind.INSPECTED, f"looking into a forward of {width} changed the one after it")
    replay.back()
