"""What a probe's process tells of the inside of a forward, as JSON and back. Digests are hexadecimal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pilotfish.hooks.inspection import CellsPart, Operation, Trace


def trace_to_json(trace: Trace) -> dict[str, Any]:
    """JSON-ready values."""
    return {"operations": [_operation(one) for one in trace.operations], "rows": _hex(trace.rows)}


def trace_from_json(table: Mapping[str, Any]) -> Trace:
    """The inverse of `trace_to_json`."""
    return Trace(tuple(map(_operation_of, table["operations"])), _digests(table["rows"]))


def parts_to_json(parts: Iterable[CellsPart]) -> list[dict[str, Any]]:
    """JSON-ready values."""
    return [{"name": part.name, "before": part.before.hex(), "cells": _hex(part.cells)} for part in parts]


def parts_from_json(tables: Iterable[Mapping[str, Any]]) -> tuple[CellsPart, ...]:
    """The inverse of `parts_to_json`."""
    return tuple(CellsPart(t["name"], bytes.fromhex(t["before"]), _digests(t["cells"])) for t in tables)


def _operation(one: Operation) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "shape": list(one.shape),
        "digest": one.digest.hex(),
        "slices": {str(axis): _hex(digests) for axis, digests in one.slices.items()},
        "weights": one.weights,
        "number_format": one.number_format,
    }


def _operation_of(table: Mapping[str, Any]) -> Operation:
    return Operation(
        table["name"],
        table["kind"],
        tuple(table["shape"]),
        bytes.fromhex(table["digest"]),
        {int(axis): _digests(digests) for axis, digests in table["slices"].items()},
        table["weights"],
        table["number_format"],
    )


def _hex(digests: Iterable[bytes]) -> list[str]:
    return [digest.hex() for digest in digests]


def _digests(texts: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(map(bytes.fromhex, texts))
