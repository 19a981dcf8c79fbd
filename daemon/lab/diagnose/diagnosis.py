"""What a diagnosis found, as values. Widths, cells and ids are counts; scores are logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pilotfish.daemon.certify.reproductions import Reproduction


class PastKind(StrEnum):
    """A way to write the same cells."""

    FRESH = "fresh prefill"  # every id as a prompt
    SINGLE = "single tokens"  # the prompt, then one committed id at a time
    BLOCKS = "accepted blocks"  # the prompt, then the rounds as they were


class FaultKind(StrEnum):
    """What makes comparisons of widths worth less, or nothing."""

    UNREPEATABLE = "unrepeatable"
    UNCUT = "uncut"
    PEEKING = "peeking"
    INSPECTED = "inspected"


@dataclass(frozen=True, slots=True)
class Fault:
    """`what` is for a person. After the first two kinds no comparison would mean anything."""

    kind: FaultKind
    what: str

    @property
    def fatal(self) -> bool:
        return self.kind in (FaultKind.UNREPEATABLE, FaultKind.UNCUT)


@dataclass(frozen=True, slots=True)
class Scores:
    """The first row of a forward of `width` tokens: what it chooses, by how much, and how far it is from the plain one.

    `off` is the largest difference of any two scores of one id, None where the probe does not tell its rows.
    """

    width: int
    equal: bool
    chosen: int | None
    score: float | None
    margin: float | None  # to the runner-up
    off: float | None


@dataclass(frozen=True, slots=True)
class PastFound:
    """After one way to write the cells: which widths give equal rows, their scores, and where the cells differ.

    `classes` are compared within this past; `scores`, of one width of each and of the two that were asked about, with
    the plain forward after single tokens. `cells` names the first part of the cache, in the engine's order, that is not
    what single tokens write, and the cell; else it is empty.
    """

    kind: PastKind
    classes: tuple[tuple[int, ...], ...]
    scores: tuple[Scores, ...]
    cells: str


@dataclass(frozen=True, slots=True)
class Parting:
    """The first operation whose output differs, in the order of computation.

    `row` counts tokens of the forward from 0. `equal_before` operations were compared and equal. `layer` is None
    outside of layers. `heals` says that the rows are equal in spite of it.
    """

    row: int
    name: str
    kind: str
    layer: int | None
    weights: str
    number_format: str
    equal_before: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    digests: tuple[str, str]
    heals: bool

    @property
    def title(self) -> str:
        """`attention (FLASH_ATTN_EXT)`, `the product with blk.3.ffn_down.weight (q4_K)`, ..."""
        if self.weights:
            return f"the product with {self.weights} ({self.number_format})"
        attention = "ATTN" in self.kind or self.kind.startswith(("MUL_MAT", "SOFT_MAX"))  # a product without weights
        return f"attention ({self.kind})" if attention else f"{self.kind}, {self.name}"


@dataclass(frozen=True, slots=True)
class ClassParting:
    """Where two classes of widths part: what parts one width of each."""

    widths: tuple[int, int]
    parting: Parting


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`faults` stand in the order in which they were looked for; `tried` are widths.

    `decisive` is the first parting of a token whose rows differ, where those of `parting`'s token do not. `between` has
    the partings of neighbouring classes of the last past. `minimal` has as little of the prefix as shows the
    difference; None where nothing differs.
    """

    model: str
    engine: str
    asked: Reproduction
    tried: tuple[int, ...]
    faults: tuple[Fault, ...] = ()
    pasts: tuple[PastFound, ...] = ()
    parting: Parting | None = None
    decisive: Parting | None = None
    between: tuple[ClassParting, ...] = ()
    minimal: Reproduction | None = None
    notes: tuple[str, ...] = ()
    complete: bool = True  # False where time ran out

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The widths that the prefix separates: equal in every past."""
        if not self.pasts:
            return ()
        groups: dict[tuple[int, ...], list[int]] = {}
        for width in self.tried:
            groups.setdefault(tuple(_number(past.classes, width) for past in self.pasts), []).append(width)
        return tuple(map(tuple, groups.values()))

    @property
    def differs(self) -> bool:
        """Whether anything is not as it should be."""
        cells = any(past.cells for past in self.pasts)
        return bool(self.faults or self.minimal or self.parting or cells or len(self.classes) > 1)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        table = asdict(self)
        for name, found in (("asked", self.asked), ("minimal", self.minimal)):
            table[name] = found.to_json() if found else None
        for name, one in (("parting", self.parting), ("decisive", self.decisive)):
            table[name] = _titled(one) if one else None
        table["between"] = [{"widths": pair.widths, "parting": _titled(pair.parting)} for pair in self.between]
        return {**table, "classes": self.classes, "differs": self.differs}


def _titled(parting: Parting) -> dict[str, Any]:
    return {**asdict(parting), "title": parting.title}


def _number(classes: Sequence[Sequence[int]], width: int) -> int:
    return next((number for number, group in enumerate(classes) if width in group), -1)
