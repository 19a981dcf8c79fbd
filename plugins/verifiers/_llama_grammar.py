"""From a request's grammar or JSON schema to GBNF that libllama can be trusted with."""

from __future__ import annotations

import json
from typing import Any

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._llama.library import last_words, lib
from pilotfish.plugins.verifiers._json_schema import grammar_of_schema
from pilotfish.plugins.verifiers._json_schema_place import largest_repetition
from pilotfish.plugins.verifiers._llama_grammar_cost import check_cost

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


def compile_grammar(vocab: Any, grammar: str, schema: str = "") -> Any:
    """A grammar sampler, to be freed by the caller. Raises RequestError naming what is wrong.

    `schema` is the one that `grammar` was made of; then the message names the place in it.
    """
    data = _checked(grammar)
    last_words()
    sampler = lib.llama_sampler_init_grammar(vocab, data, b"root")
    if sampler:
        return sampler
    if schema and (place := largest_repetition(json.loads(schema))):
        raise RequestError(f"json_schema: {place} is more than a grammar can repeat; ask for less")
    raise RequestError(f"grammar: failed to parse grammar: {last_words()}; send GBNF with a `root` rule")


def _checked(grammar: str) -> bytes:
    try:
        data = grammar.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"grammar: not valid Unicode: {error}") from error
    if b"\0" in data:
        raise RequestError("grammar: contains a NUL byte; write it as \\x00")
    if len(data) > MAX_BYTES:
        raise RequestError(f"grammar: {len(data)} bytes; at most {MAX_BYTES} are accepted")
    check_cost(grammar)
    return data
