"""Receipts as JSON, and back: every value of the type that its field says, or an error that names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, ClassVar, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints


class IsDataclass(Protocol):
    """What `dataclasses.fields` takes."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=IsDataclass)


def encoded(value: Any) -> Any:
    """JSON-ready: dataclasses as objects by field, tuples as lists. Minus infinity, which JSON lacks, as a text."""
    if is_dataclass(value):
        return {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def decoded(kind: type[T], value: Any, where: str = "") -> T:
    """A dataclass from what `encoded` made of one. Raises ValueError naming the field that is missing or wrong."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where or 'the document'} is not an object")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(set(value) - set(known)):
        raise ValueError(f"{_path(where, unknown[0])} is no field of this version")
    found = {}
    for name, field in known.items():
        if name in value:
            found[name] = _value(hints[name], value[name], _path(where, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{_path(where, name)} is missing")
    return kind(**found)


def _value(hint: Any, value: Any, where: str) -> Any:
    """`value` as `hint` says: plain types, tuples of one kind or of fixed places, mappings, optionals, dataclasses."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return None if value is None and NoneType in inner else _value(_not_none(inner), value, where)
    if origin is tuple:
        return _tuple(inner, value, where)
    if hint is Any:
        return value
    if origin is not None:
        return _mapping(inner, value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return decoded(hint, value, where)
    return _plain(hint, value, where)


def _not_none(inner: tuple[Any, ...]) -> Any:
    return next(option for option in inner if option is not NoneType)


def _tuple(inner: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_value(inner[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if len(inner) != len(value):
        raise ValueError(f"{where} has {len(value)} entries, not {len(inner)}")
    return tuple(_value(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(inner, value, strict=True)))


def _mapping(inner: tuple[Any, ...], value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is not an object")
    return {name: _value(inner[1], item, _path(where, name)) for name, item in value.items()}


def _plain(hint: type, value: Any, where: str) -> Any:
    if issubclass(hint, StrEnum) and isinstance(value, str):
        return hint(value)
    if hint is float and value in ("inf", "-inf", "nan"):
        return float(value)
    fits = isinstance(value, int | float if hint is float else hint) and (hint is bool or not isinstance(value, bool))
    if not fits:
        raise ValueError(f"{where} is {value!r:.40}, not a {hint.__name__}")
    return float(value) if hint is float else value


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
