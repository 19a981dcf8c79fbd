"""From a request's grammar or JSON schema to GBNF that a parser of the llama.cpp family can be trusted with."""

from __future__ import annotations

import json

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.grammar_cost import check_cost
from pilotfish.plugins._cells.json_schema import grammar_of_schema

MAX_BYTES = 512 * 1024


def grammar_of(params: SamplingParams) -> str:
    """The request's GBNF: its own, or its schema's; empty when it asks for neither. Raises RequestError."""
    if params.grammar or not params.json_schema:
        return params.grammar
    if len(params.json_schema) > MAX_BYTES:
        raise RequestError(f"json_schema: {len(params.json_schema)} characters; at most {MAX_BYTES} are accepted")
    try:
        schema = json.loads(params.json_schema)
        # llama-server reads the empty schema as "any object"
        return grammar_of_schema({"type": "object"} if schema == {} else schema)
    except RecursionError as error:
        raise RequestError("json_schema: nested too deeply; flatten the schema") from error
    except ValueError as error:
        raise RequestError(f"json_schema: not valid JSON: {error}") from error


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
