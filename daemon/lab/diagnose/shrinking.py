"""The least of a prefix after which two forwards still part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pilotfish.daemon.certify.probe_driver import OutOfTime
from pilotfish.daemon.certify.reproductions import Reproduction
from pilotfish.daemon.lab.diagnose.diagnosis import PastKind
from pilotfish.daemon.lab.diagnose.replaying import HistoryReplay

Rebuilt = Callable[[Reproduction], tuple[HistoryReplay, HistoryReplay]]


def part(plain: HistoryReplay, other: HistoryReplay) -> bool:
    """Whether the rows of the other forward are not the plain ones, after a prompt. Raises EngineError or OutOfTime."""
    width, step = other.asked.other.width, plain.asked.plain.width
    other.ready(PastKind.FRESH)
    theirs = other.rows(other.ids[other.start :][:width], width)
    plain.ready(PastKind.FRESH)
    for at in range(0, width, step):
        ours = plain.rows(plain.ids[plain.start + at :][:step], step)
        if any(a != b for a, b in zip(ours, theirs[at:], strict=False)):
            return True
    return False


def shortened(asked: Reproduction, ids: list[int], rebuilt: Rebuilt) -> Reproduction:
    """`asked`, whose forwards part, with as short a prefix as bisection finds; `ids` go on after the prefix.

    Where time runs out it is the shortest that was found.
    """
    equal, parts = 0, len(asked.prefix)
    try:
        while parts - equal > 1:
            middle = (equal + parts) // 2
            if part(*rebuilt(_cut(asked, ids, middle))):
                parts = middle
            else:
                equal = middle
    except OutOfTime:
        pass
    return _cut(asked, ids, parts)


def _cut(asked: Reproduction, ids: list[int], size: int) -> Reproduction:
    following = tuple(ids[size : size + asked.other.width - 1])
    return replace(asked, prefix=tuple(ids[:size]), following=following, prompt=size, rounds=())
