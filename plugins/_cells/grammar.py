"""From a request's grammar or JSON schema to GBNF that a parser of the llama.cpp family can be trusted with."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.grammar_cost import check_cost
from pilotfish.plugins._cells.json_schema import grammar_of_schema, rules_of_schema

MAX_BYTES = 512 * 1024

_T = TypeVar("_T")


def grammar_of(params: SamplingParams) -> str:
    """The request's GBNF: its own, with those of the schemas that it refers to, or its one schema's; empty when it asks
    for neither. Raises RequestError."""
    if not params.grammar:
        return _converted(params.json_schema, grammar_of_schema) if params.json_schema else ""
    rules: dict[str, str] = {}
    for name, schema in params.schemas:
        rules |= _converted(schema, partial(rules_of_schema, root=name, prefix=f"{name}-"))
    return params.grammar + "".join(
        f"{name} ::= {body}\n" for name, body in rules.items() if not _defines(params, name)
    )


def _converted(text: str, convert: Callable[[Any], _T]) -> _T:
    if len(text) > MAX_BYTES:
        raise RequestError(f"json_schema: {len(text)} characters; at most {MAX_BYTES} are accepted")
    try:
        schema = json.loads(text)
        # llama-server reads the empty schema as "any object"
        return convert({"type": "object"} if schema == {} else schema)
    except RecursionError as error:
        raise RequestError("json_schema: nested too deeply; flatten the schema") from error
    except ValueError as error:
        raise RequestError(f"json_schema: not valid JSON: {error}") from error


def _defines(params: SamplingParams, name: str) -> bool:
    return f"\n{name} ::=" in f"\n{params.grammar}"


def checked(grammar: str, *, nested: bool = False) -> bytes:
    """The grammar's bytes. Raises RequestError for one that the parser could not survive.

    `nested` is for a parser that does not limit repetitions of repetitions.
    """
    try:
        data = grammar.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"grammar: not valid Unicode: {error}") from error
    if b"\0" in data:
        raise RequestError("grammar: contains a NUL byte; write it as \\x00")
    if len(data) > MAX_BYTES:
        raise RequestError(f"grammar: {len(data)} bytes; at most {MAX_BYTES} are accepted")
    check_cost(grammar, nested=nested)
    return data
