"""A receipt that can be shown to others: no prompt, no answer, no folder; counts and times as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from pilotfish.daemon.lab.receipts.receipt_types import Receipt, RoundRecord, TrialRecord, TrialVerdict

LEFT_OUT = "(left out)"


def redacted(receipt: Receipt) -> Receipt:
    """The same run without ids and texts, and without addresses, paths and values of the drafters' tables."""
    settings, environment = receipt.settings, receipt.environment
    tables = {name: _without_values(table) for name, table in settings.drafters.items()}
    control = LEFT_OUT if settings.control else ""
    return replace(
        receipt,
        environment=replace(environment, variables=_without_values(environment.variables)),
        pins=replace(receipt.pins, model=_file_name(receipt.pins.model)),
        settings=replace(settings, drafters=tables, control=control, redacted=True),
        trials=tuple(_trial(trial) for trial in receipt.trials),
        controls=tuple(replace(one, url=LEFT_OUT, about=LEFT_OUT if one.about else "") for one in receipt.controls),
    )


def _trial(trial: TrialRecord) -> TrialRecord:
    rounds = tuple(_round(round) for round in trial.rounds)
    table = _without_values(trial.table)
    about = LEFT_OUT if trial.verdict is TrialVerdict.FAILED else trial.about  # an error may name files
    return replace(trial, rounds=rounds, table=table, about=about, prompt_ids=None, output_ids=None, text=None)


def _round(round: RoundRecord) -> RoundRecord:
    return replace(round, proposed=None, committed=None)


def _without_values(table: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and switches stay; a text may be a path, an address or a secret."""
    return {name: value if isinstance(value, bool | int | float) else LEFT_OUT for name, value in table.items()}


def _file_name(model: str) -> str:
    """The model's name; of a file, without its folder."""
    return PurePath(model).name if model.endswith(".gguf") else model
