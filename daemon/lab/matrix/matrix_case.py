"""One line of the matrix: which model on which engine, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MatrixSize:
    """How much is compared for each model: `tokens` ids after each of `contexts` tokens of text."""

    contexts: tuple[int, ...] = (64, 400, 1200)  # tokens: below a window of 128, beyond it, and around its ring
    tokens: int = 84  # of which there are 12 times as many in a row: 3 contexts, 2 modes, 2 drafters

    def to_json(self) -> dict[str, Any]:
        return {"contexts": list(self.contexts), "tokens": self.tokens}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> MatrixSize:
        return cls(tuple(table["contexts"]), table["tokens"])


@dataclass(frozen=True, slots=True)
class MatrixCase:
    """An architecture's tiny model in a number format on an engine."""

    architecture: str
    format: str
    engine: str

    def __str__(self) -> str:
        return f"{self.architecture} {self.format} on {self.engine}"


@dataclass(frozen=True, slots=True)
class MatrixAnswer:
    """One speculative answer beside the plain one. `differs_at` is the first other id's index, None if none is."""

    context: int
    mode: str
    drafter: str
    tokens: int
    drafted: int
    accepted: int
    differs_at: int | None


@dataclass(frozen=True, slots=True)
class KeptPrefix:
    """A prompt that begins as one before it: `shared` ids are the same, of which `kept` were not read again.

    `equal`: the answer was the one after reading all of it. None where nothing was kept.
    """

    shared: int
    kept: int
    equal: bool | None


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What was found for a case. With `failed` the rest may be missing.

    `distinct` is how many different ids the least varied answer had: a model that only repeats itself proves little.
    """

    case: MatrixCase
    size: MatrixSize
    weights: int = 0  # bytes of the file
    lane: str = ""
    widths: tuple[int, ...] = ()
    reason: str = ""
    rollback: str = ""
    kept: tuple[KeptPrefix, ...] = ()
    compared: tuple[MatrixAnswer, ...] = ()
    distinct: int = 0
    failed: str = ""
    stock: str = ""  # what a stock llama-server did with it; empty where none was asked

    @property
    def differences(self) -> int:
        """Answers that were not what they had to be."""
        return sum(one.differs_at is not None for one in self.compared) + sum(one.equal is False for one in self.kept)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "differences": self.differences}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> MatrixRow:
        """Raises KeyError or TypeError for what is no row."""
        plain = {key: table[key] for key in ("weights", "lane", "reason", "rollback", "distinct", "failed", "stock")}
        return cls(
            MatrixCase(**table["case"]),
            MatrixSize.from_json(table["size"]),
            widths=tuple(table["widths"]),
            kept=tuple(KeptPrefix(**one) for one in table["kept"]),
            compared=tuple(MatrixAnswer(**one) for one in table["compared"]),
            **plain,
        )


def cases(architectures: Sequence[str], formats: Sequence[str], engines: Sequence[str]) -> list[MatrixCase]:
    """All of them, an architecture's beside one another."""
    return [
        MatrixCase(architecture, kind, engine)
        for architecture in architectures
        for engine in engines
        for kind in formats
    ]
