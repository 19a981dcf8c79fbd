"""What crosses the pipe between the certifier and a probe's process: JSON lines, parsed into the contract's types.

An answer's raw bytes, if any, follow its line, which says how many they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pilotfish.hooks.types import EngineOptions, EngineSetting, FarEnd, Lane, TargetPin, TokenizerPin, WeightPin

PAYLOAD = "bytes"  # key of an answer: how many raw bytes follow its line
BROKEN = "broken"  # key of an error: the engine does not take the model

_T = TypeVar("_T")


def typed(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """`kind(**values)` for a dataclass of plain values, whose types are compared with the fields'.

    Of tuples and mappings only that they are some; a name from an enum becomes its member. Raises TypeError naming a
    value of another type, ValueError for a name that the enum has not, OverflowError for a whole number in the place of
    a real one that is too large for it.
    """
    typed_values = dict(values)
    for name, hint in get_type_hints(kind).items():
        if name not in values:
            continue
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            typed_values[name] = hint(values[name])
        elif not _is_a(values[name], hint):
            raise TypeError(f"{name} is {values[name]!r:.40}")
    return kind(**typed_values)


def _is_a(value: object, hint: Any) -> bool:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    possible = tuple(get_origin(option) or option for option in options)
    if isinstance(value, bool):
        return bool in possible
    return isinstance(value, possible) or (isinstance(value, int) and float in possible and math.isfinite(value))


def lane_to_json(lane: Lane) -> dict[str, Any]:
    """JSON-ready values; tuples become lists when written."""
    return asdict(lane)


def lane_from_json(table: dict[str, Any]) -> Lane:
    """Raises KeyError, TypeError or ValueError when the table is not a lane."""
    _check_keys(table, Lane)
    widths = tuple(int(width) for width in table["widths"])
    if not widths or list(widths) != sorted(set(widths)) or widths[0] < 1:
        raise ValueError(f"{table['widths']} are no widths")
    return typed(Lane, {**table, "widths": widths, "setting": setting_from_json(table["setting"])})


def setting_to_json(setting: EngineSetting) -> dict[str, Any]:
    """JSON-ready values; tuples become lists when written."""
    return asdict(setting)


def setting_from_json(table: dict[str, Any]) -> EngineSetting:
    """Raises KeyError, TypeError or ValueError when the table is not a setting."""
    _check_keys(table, EngineSetting)
    environment = tuple((str(name), str(value)) for name, value in table["environment"])
    return typed(EngineSetting, {**table, "environment": environment})


def _check_keys(table: dict[str, Any], kind: type[Lane | EngineSetting]) -> None:
    known = {field.name for field in fields(kind)}
    if set(table) != known:
        raise ValueError(f"a {kind.__name__} has the keys {sorted(known)}, not {sorted(table)}")


def pin_to_json(pin: TargetPin) -> dict[str, Any]:
    """What a verifier needs to load the model."""
    table = asdict(pin)
    table["weights"] = [{**weight, "path": str(weight["path"])} for weight in table["weights"]]
    return table


def pin_from_json(table: dict[str, Any]) -> TargetPin:
    """The inverse of `pin_to_json`."""
    weights = tuple(WeightPin(w["digest"], Path(w["path"]), w["size"]) for w in table["weights"])
    return TargetPin(**{**table, "weights": weights, "tokenizer": TokenizerPin(**table["tokenizer"])})


def options_to_json(options: EngineOptions) -> dict[str, Any]:
    """JSON-ready values."""
    return {**asdict(options), "state_dir": str(options.state_dir) if options.state_dir else None}


def options_from_json(table: dict[str, Any]) -> EngineOptions:
    """The inverse of `options_to_json`."""
    state_dir = table["state_dir"]
    read = {
        "state_dir": Path(state_dir) if state_dir else None,
        "far_ends": tuple(FarEnd(*far_end) for far_end in table["far_ends"]),
        "tensor_split": tuple(table["tensor_split"]),
    }
    return EngineOptions(**{**table, **read})
