"""What a forward computes on its way to its rows, for finding out where two forwards part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

_UNNAMED = re.compile(r"(node|leaf)_\d+")  # numbered by ggml, otherwise in every graph


@dataclass(frozen=True, slots=True)
class Operation:
    """One tensor as a forward computed it. Names are the engine's own: `Qcur-3`, `MUL_MAT`, `blk.3.attn_q.weight`.

    `shape` has the innermost length first, as ggml writes it. `slices` are digests along every axis that is as long as
    the forward is wide: the rows of its tokens are along one of them. `weights` is empty where no stored weights are
    multiplied, and `number_format` is then that of the result.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    digest: bytes
    slices: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    weights: str = ""
    number_format: str = ""

    @property
    def unnamed(self) -> bool:
        """Whether its name is a number that the engine gave it in this graph."""
        return _UNNAMED.search(self.name) is not None

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name, the same in graphs of other widths: which operation it is, but for those of the same key."""
        return self.kind, _UNNAMED.sub("", self.name)

    def with_digests(self, change: Callable[[bytes], bytes]) -> Operation:
        """The same with every digest changed."""
        slices = {axis: tuple(map(change, digests)) for axis, digests in self.slices.items()}
        return replace(self, digest=change(self.digest), slices=slices)


@dataclass(frozen=True, slots=True)
class Trace:
    """A forward that was looked into: its operations in the order of their computation, and its rows' digests."""

    operations: tuple[Operation, ...]
    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CellsPart:
    """What a part of the cache holds: `layer 3 keys`, or all of it where the engine's form is not known.

    `before` is the digest of the cells that were not asked for one by one; `cells` are those that were.
    """

    name: str
    before: bytes
    cells: tuple[bytes, ...] = ()


@runtime_checkable
class InspectsForwards(Protocol):
    """A probe that can look into its forwards. Neither call changes what the probe holds."""

    def trace(self, tokens: Sequence[int], width: int) -> Trace:
        """One forward as `Probe.rows` would run it after the same cells, in a context apart. Raises EngineError."""
        ...

    def cells(self, since: int) -> tuple[CellsPart, ...]:
        """What the cache holds, cell by cell from number `since` on. Raises EngineError."""
        ...
