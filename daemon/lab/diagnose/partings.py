"""The first operation of two traced forwards whose output differs, in the order of computation."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from pilotfish.daemon.lab.diagnose.diagnosis import Parting, PastKind
from pilotfish.daemon.lab.diagnose.replaying import HistoryReplay
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import InspectsForwards, Operation, Trace

_LAYER = re.compile(r"-(\d+)$")  # libllama ends names of a layer's tensors so

Pair = tuple[int, Operation, Operation]


def parting(plain: Trace, other: Trace, row: tuple[int, int], *, heals: bool = False) -> Parting | None:
    """Where token number `row[0]` of one forward parts from number `row[1]` of another; None where no output differs.

    Operations are paired by kind and name; those that only one forward has, or that have no rows of tokens to compare,
    are passed over.
    """
    equal = 0
    for number, ours, theirs in _pairs(plain.operations, other.operations):
        digests = _comparable(ours, theirs, row)
        if digests is None:
            continue
        if digests[0] != digests[1]:
            return Parting(
                row=row[1],
                name=ours.name,
                kind=ours.kind,
                layer=_layer(plain.operations, number),
                weights=ours.weights,
                number_format=ours.number_format,
                equal_before=equal,
                shapes=(ours.shape, theirs.shape),
                digests=(digests[0].hex(), digests[1].hex()),
                heals=heals,
            )
        equal += 1
    return None


def _pairs(ours: Sequence[Operation], theirs: Sequence[Operation]) -> Iterator[Pair]:
    matcher = difflib.SequenceMatcher(None, [one.key for one in ours], [one.key for one in theirs], autojunk=False)
    for a, b, size in matcher.get_matching_blocks():
        yield from ((a + i, ours[a + i], theirs[b + i]) for i in range(size))


def _comparable(ours: Operation, theirs: Operation, row: tuple[int, int]) -> tuple[bytes, bytes] | None:
    """The digests of the two tokens' parts.

    Of two widths the tokens lie along the one axis that is as long as each forward is wide. Of equal shapes that cannot
    be told, where another axis has that length, too; then all of both is compared.
    """
    axes = [axis for axis in ours.slices if axis in theirs.slices]
    differing = [i for i, (a, b) in enumerate(zip(ours.shape, theirs.shape, strict=False)) if a != b]
    if differing:
        axes = [axis for axis in axes if [axis] == differing]
    if len(axes) == 1:
        return ours.slices[axes[0]][row[0]], theirs.slices[axes[0]][row[1]]
    return (ours.digest, theirs.digest) if not differing else None


def _layer(operations: Sequence[Operation], number: int) -> int | None:
    """By its own name; where it has none, by the last one before it that has."""
    for operation in reversed(operations[: number + 1]):
        if not operation.unnamed:
            match = _LAYER.search(operation.name)
            return int(match[1]) if match else None
    return None


def partings(traces: Iterable[tuple[int, Trace, Trace]]) -> tuple[Parting, ...]:
    """The first parting there is, and if that token's rows are equal in spite of it, the first of one with other rows.

    `traces` are the number of a plain forward's first token, that forward, and the other one.
    """
    found: list[Parting] = []
    for at, plain, other in traces:
        for row in range(at, min(at + len(plain.rows), len(other.rows))):
            heals = plain.rows[row - at] == other.rows[row]
            one = parting(plain, other, (row - at, row), heals=heals)
            if one and not heals:
                return (*found, one)
            found += [one] if one and not found else []
    return tuple(found)


class Tracer:
    """Traces the plain forwards and the other one after the same history, and compares them token by token. Both may be
    one replay, where the setting is the same."""

    def __init__(self, plain: HistoryReplay, other: HistoryReplay, widths: tuple[int, int] | None = None) -> None:
        """`widths` of the plain forwards and the other one, instead of those that were asked about."""
        self._plain, self._other = plain, other
        self._step, self._width = widths or (plain.asked.plain.width, other.asked.other.width)

    def find(self) -> tuple[Parting, ...]:
        """See `partings`. Raises EngineError where a probe cannot be looked into."""
        return partings(self._traces())

    def _traces(self) -> Iterator[tuple[int, Trace, Trace]]:
        """One plain forward after the other, with the number of its first token, and the other forward."""
        width, step = self._width, self._step
        self._other.ready(PastKind.FRESH)
        other = self._trace(self._other, self._other.start, width)
        self._plain.ready(PastKind.FRESH)
        for at in range(0, width, step):
            yield at, self._trace(self._plain, self._plain.start + at, step), other
            self._plain.rows(self._plain.ids[self._plain.start + at :][:step], step)

    def _trace(self, replay: HistoryReplay, at: int, width: int) -> Trace:
        if not isinstance(replay.probe, InspectsForwards):
            raise EngineError(f"the probe of {replay.probe.engine.name} cannot be looked into: no operation is named")
        return replay.probe.trace(replay.ids[at : at + width], width)
