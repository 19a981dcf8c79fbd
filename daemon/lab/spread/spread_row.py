"""What was measured at one delay, and what is asked for."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

WIDTHS = (1, 2, 4, 8, 16, 32)  # of the blocks that are timed


@dataclass(frozen=True, slots=True)
class SpreadSize:
    """How much is measured: tokens of each answer, rounds of each pair of answers, near end's threads."""

    tokens: int = 96
    rounds: int = 3
    threads: int = 1
    context: int = 1024


@dataclass(frozen=True, slots=True)
class BlockCost:
    """A forward of `width` tokens: the median of what it took, and whether its rows are those of single steps."""

    width: int
    seconds: float
    equal: bool


class LearnedCost(NamedTuple):
    """What the controller saw: `samples` forwards of `width` tokens in contexts from `context` tokens on took so many
    plain `steps` each."""

    width: int
    context: int
    steps: float
    samples: int


@dataclass(frozen=True, slots=True)
class SpreadAnswer:
    """One workload, answered plainly and with drafts by turns, `rounds` times each.

    Rates are tokens per second of decoding, one for each round; of the rounds with drafts the first began with no
    knowledge of what forwards cost. `equal`: every one of these answers had the same ids. `apart`: they are the ones
    that the same split gives without pilotfish; None where that was not asked, as for sampled answers.
    """

    workload: str
    kind: str
    mode: str
    ids: tuple[int, ...]
    plain: tuple[float, ...]
    speculative: tuple[float, ...]
    drafted: int
    accepted: int
    equal: bool
    apart: bool | None = None

    @property
    def plain_rate(self) -> float:
        return statistics.median(self.plain)

    @property
    def speculative_rate(self) -> float:
        return statistics.median(self.speculative)

    @property
    def ratio(self) -> float:
        """How many times as fast it was decoded with drafts; above 1 is faster."""
        return self.speculative_rate / self.plain_rate if self.plain_rate else 0.0

    @property
    def differs(self) -> bool:
        return not self.equal or self.apart is False

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> SpreadAnswer:
        """Raises KeyError or TypeError where it is none."""
        known = {name: tuple(table[name]) for name in ("ids", "plain", "speculative")}
        return cls(**{**_without(table, "ratio"), **known})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": round(self.ratio, 3)}


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """One delay, in seconds one way. With `failed` nothing else may be there.

    `load` are the seconds until the model was ready, the check of its lane included; beyond `max_context` tokens (None:
    anywhere) nothing was compared by that check. `learned` is what forwards were seen to cost while answers were
    written.
    """

    delay: float
    load: float = 0.0
    lane: str = ""
    widths: tuple[int, ...] = ()
    reason: str = ""
    max_context: int | None = None
    blocks: tuple[BlockCost, ...] = ()
    answers: tuple[SpreadAnswer, ...] = ()
    learned: tuple[LearnedCost, ...] = ()
    failed: str = ""

    @property
    def step(self) -> float:
        """Seconds of a single step; 0 where none was timed."""
        return next((block.seconds for block in self.blocks if block.width == 1), 0.0)

    def steps(self, width: int) -> float | None:
        """What a block of `width` costs, in single steps; None where it was not timed."""
        found = next((block.seconds for block in self.blocks if block.width == width), None)
        return found / self.step if found is not None and self.step else None

    @property
    def equal_widths(self) -> tuple[int, ...]:
        """Of those that were timed, the ones whose rows are single steps'."""
        return tuple(block.width for block in self.blocks if block.equal)

    @property
    def differs(self) -> bool:
        return any(answer.differs for answer in self.answers)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> SpreadRow:
        """Raises KeyError or TypeError where it is none."""
        known = {
            "widths": tuple(table["widths"]),
            "blocks": tuple(BlockCost(**block) for block in table["blocks"]),
            "answers": tuple(SpreadAnswer.from_json(answer) for answer in table["answers"]),
            "learned": tuple(LearnedCost(*cost) for cost in table["learned"]),
        }
        return cls(**{**_without(table, "step"), **known})

    def to_json(self) -> dict[str, Any]:
        answers = [answer.to_json() for answer in self.answers]
        learned = [list(cost) for cost in self.learned]
        return {**asdict(self), "answers": answers, "learned": learned, "step": self.step}


def _without(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}
