"""A request's grammar as libllama's own sampler."""

from __future__ import annotations

import json
from typing import Any

from pilotfish.hooks.errors import RequestError
from pilotfish.plugins._cells.grammar import checked
from pilotfish.plugins._cells.json_schema_place import largest_repetition
from pilotfish.plugins._llama.library import last_words, lib


def compile_grammar(vocab: Any, grammar: str, schema: str = "") -> Any:
    """A grammar sampler, to be freed by the caller. Raises RequestError naming what is wrong.

    `schema` is the one that `grammar` was made of; then the message names the place in it.
    """
    data = checked(grammar)
    last_words()
    sampler = lib.llama_sampler_init_grammar(vocab, data, b"root")
    if sampler:
        return sampler
    if schema and (place := largest_repetition(json.loads(schema))):
        raise RequestError(f"json_schema: {place} is more than a grammar can repeat; ask for less")
    raise RequestError(f"grammar: failed to parse grammar: {last_words()}; send GBNF with a `root` rule")
