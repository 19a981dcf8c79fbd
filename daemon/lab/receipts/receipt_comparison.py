"""Two receipts side by side: what differs between the runs, and whether the same questions got the same ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.lab.parity_runs import first_difference
from pilotfish.daemon.lab.receipts.receipt_figures import groups_of
from pilotfish.daemon.lab.receipts.receipt_json import encoded
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, TrialRecord


@dataclass(frozen=True, slots=True)
class RateBeside:
    """Median rates of one drafter at one length in both runs, in ids per second; None where a run has none."""

    title: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """The second's over the first's."""
        return self.second / self.first if self.first and self.second else None


@dataclass(frozen=True, slots=True)
class ReceiptComparison:
    """`differences` are (field, first, second) of machine, pins and settings.

    Of the trials that both have, `same` had equal ids; `other` are (trial, index of the first other id); of `unknown`
    the ids were left out or there are none.
    """

    differences: tuple[tuple[str, str, str], ...]
    rates: tuple[RateBeside, ...]
    same: int
    other: tuple[tuple[str, int], ...]
    unknown: int


def compare_receipts(first: Receipt, second: Receipt) -> ReceiptComparison:
    """Of two runs of any kind; times are only comparable where machine and pins are equal."""
    pairs = list(_pairs(first, second))
    known = [
        (a.name, first_difference(a.output_ids, b.output_ids))
        for a, b in pairs
        if a.output_ids is not None and b.output_ids is not None
    ]
    other = [(name, at) for name, at in known if at is not None]
    return ReceiptComparison(
        differences=tuple(_differences(first, second)),
        rates=tuple(_rates(first, second)),
        same=len(known) - len(other),
        other=tuple(other),
        unknown=len(pairs) - len(known),
    )


def _pairs(first: Receipt, second: Receipt) -> Iterator[tuple[TrialRecord, TrialRecord]]:
    """Trials that asked the same."""
    there = {_key(trial): trial for trial in second.trials}
    for trial in first.trials:
        if (match := there.get(_key(trial))) is not None:
            yield trial, match


def _key(trial: TrialRecord) -> tuple[Any, ...]:
    return trial.kind, trial.prompt, trial.drafter, trial.length, trial.case, trial.repeat, trial.control


def _differences(first: Receipt, second: Receipt) -> Iterator[tuple[str, str, str]]:
    for part in ("environment", "pins", "settings"):
        mine, others = (dict(_flat(encoded(getattr(receipt, part)), part)) for receipt in (first, second))
        for name in dict.fromkeys([*mine, *others]):
            if mine.get(name) != others.get(name):
                yield name, str(mine.get(name, "-")), str(others.get(name, "-"))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}")
    else:
        yield name, value


def _rates(first: Receipt, second: Receipt) -> Iterator[RateBeside]:
    mine, others = ({group.title: group.rate for group in groups_of(receipt)} for receipt in (first, second))
    for title in dict.fromkeys([*mine, *others]):
        yield RateBeside(title, mine.get(title), others.get(title))
