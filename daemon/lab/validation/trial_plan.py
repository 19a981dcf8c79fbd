"""What a run will ask, in which order, and what that costs, before anything is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.config.types import MAX_WIDTH
from pilotfish.daemon.lab.receipts.receipt_types import TrialKind
from pilotfish.daemon.lab.validation.oracle_cases import BIASES, CASES, END
from pilotfish.hooks.errors import UsageError

INTERLEAVED, BASELINE_FIRST = "interleaved", "baseline-first"
ORDERS = (INTERLEAVED, BASELINE_FIRST)
AUTO = "auto"  # a length: the controller chooses, as it does for people
ORACLE = "oracle"
_LONGEST = MAX_WIDTH - 1


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial before it is asked; the fields are those of its record."""

    kind: TrialKind
    prompt: str
    drafter: str = ""
    length: str = ""
    case: str = ""
    repeat: int = 1
    control: int | None = None

    def name(self, number: int) -> str:
        """Unique by its number; the rest is for people."""
        kind = self.kind if self.control is None else f"{self.kind} {self.control + 1}"
        said = [kind if self.kind is not TrialKind.DRAFT else self.drafter, self.length, self.case, self.prompt]
        words = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in said if part)
        return f"{number:03d}-{words}-{self.repeat}"[:100].rstrip("-")


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What is asked for. `lengths` are numbers, or `auto`; `drafters` have the config's tables."""

    prompts: tuple[str, ...]
    drafters: Mapping[str, Mapping[str, Any]]
    lengths: tuple[str, ...]
    repeats: int
    tokens: int
    oracle_cases: bool = False
    controls: int = 0  # Ollamas that are asked, too
    order: str = INTERLEAVED

    def trials(self, longest: int | None = None) -> list[PlannedTrial]:
        """Every trial in order. `longest` is the longest proposal that the lane holds; None before that is known."""
        drafts = [(name, length) for name in self.drafters for length in self.lengths_within(longest)]
        asked = [PlannedTrial(TrialKind.COLD, self.prompts[0])]
        asked += self._baseline_first(drafts) if self.order == BASELINE_FIRST else self._interleaved(drafts)
        if self.oracle_cases:
            length = str(self.oracle_length(longest))
            asked += [PlannedTrial(TrialKind.ORACLE, p, ORACLE, length, case) for p in self.prompts for case in CASES]
        for n in range(self.controls):
            asked.append(PlannedTrial(TrialKind.CONTROL, self.prompts[0], case="cold", control=n))
            asked += [
                PlannedTrial(TrialKind.CONTROL, p, repeat=r, control=n) for r in self._repeats for p in self.prompts
            ]
        return asked

    def lengths_within(self, longest: int | None) -> tuple[str, ...]:
        """The lengths to try: those that the lane cuts to one and the same are tried once."""
        cut = [n if n == AUTO or longest is None else str(min(int(n), longest)) for n in self.lengths]
        return tuple(dict.fromkeys(cut)) if longest != 0 else ()

    def oracle_length(self, longest: int | None) -> int:
        """Of the oracles' proposals: the longest that is asked for and fits."""
        numbers = [int(length) for length in self.lengths if length != AUTO] or [_LONGEST]
        return max(numbers) if longest is None else min(max(numbers), longest)

    def cost(self) -> str:
        """For a person: how many answers, and how many ids at most."""
        asked = self.trials()
        ending = len(BIASES) * len(self.prompts) if any(trial.case == END for trial in asked) else 0
        searched = f", and up to {ending} more to find an answer that ends early" if ending else ""
        counts = {kind: sum(trial.kind is kind for trial in asked) for kind in TrialKind}
        parts = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
        return f"{len(asked)} answers ({parts}) of at most {self.tokens} tokens each{searched}"

    @property
    def _repeats(self) -> range:
        return range(1, self.repeats + 1)

    def _interleaved(self, drafts: Sequence[tuple[str, str]]) -> list[PlannedTrial]:
        """Plain first in the odd repeats and last in the even ones, so that a drift of the machine hits both."""
        found = []
        for repeat in self._repeats:
            for prompt in self.prompts:
                group = [PlannedTrial(TrialKind.PLAIN, prompt, repeat=repeat), *_drafts(drafts, prompt, repeat)]
                found += group if repeat % 2 else group[::-1]
        return found

    def _baseline_first(self, drafts: Sequence[tuple[str, str]]) -> list[PlannedTrial]:
        plain = [PlannedTrial(TrialKind.PLAIN, p, repeat=r) for r in self._repeats for p in self.prompts]
        return plain + [trial for r in self._repeats for p in self.prompts for trial in _drafts(drafts, p, r)]


def _drafts(drafts: Sequence[tuple[str, str]], prompt: str, repeat: int) -> Iterator[PlannedTrial]:
    for name, length in drafts:
        yield PlannedTrial(TrialKind.DRAFT, prompt, name, length, repeat=repeat)


def lengths_of(text: str) -> tuple[str, ...]:
    """`2,4,8` or `4,auto`. Raises UsageError."""
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for part in parts:
        if part != AUTO and not (part.isdecimal() and 1 <= int(part) <= _LONGEST):
            raise UsageError(f"{text!r} is no list of lengths: numbers from 1 to {_LONGEST}, or auto, as in 2,4,8")
    return parts
