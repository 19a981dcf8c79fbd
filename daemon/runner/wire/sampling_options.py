"""A request's sampling options, read as llama-server reads them.

What this runner's sampler chain does not contain (DRY, XTC, mirostat, top-n-sigma, dynamic temperature, adaptive
targets, another order of samplers) is accepted while it is switched off and refused by name otherwise: silently
leaving a sampler out would change the answer.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterator
from typing import Any

from pilotfish.daemon.http.json_text import kind, shown
from pilotfish.daemon.runner.wire.fields import INT32_MAX, Fields, unsupported, wrong_type
from pilotfish.daemon.runner.wire.request_fields import STOCK_REMEDY
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import SamplingParams

RANDOM_SEED = 2**32 - 1  # llama-server's "choose one yourself"; -1 as an unsigned 32-bit number
SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
_SAMPLER_ALIASES = {"typical_p": "typ_p", "typical": "typ_p", "top-k": "top_k", "top-p": "top_p", "min-p": "min_p"}
_SAMPLER_CHARS = "edskypmxt"

MAX_BIAS = 3.4e38  # what a 32-bit float holds
MAX_ID = 10**18  # ids outside of the vocabulary are ignored, as stock does; a longer number is no id at all
_LIKE_A_NUMBER = re.compile("[+-]*[0-9]+")
_ID = re.compile("[+-]?[0-9]{1,18}")


def read_sampling(fields: Fields, tokenizer: Tokenizer, n_vocab: int) -> SamplingParams:
    """Raises RequestError for a wrong type or range, UnsupportedRequest for samplers that are not there."""
    _refuse_other_samplers(fields)
    default = SamplingParams()
    return SamplingParams(
        temperature=fields.real("temperature", default.temperature, 0.0),
        top_k=fields.integer("top_k", default=default.top_k, low=0, clamp=True),
        top_p=fields.real("top_p", default.top_p, 0.0, 1.0),
        min_p=fields.real("min_p", default.min_p, 0.0, 1.0),
        typical_p=fields.real("typical_p", default.typical_p),
        repeat_last_n=fields.integer("repeat_last_n", default=default.repeat_last_n, low=0),
        repeat_penalty=fields.real("repeat_penalty", default.repeat_penalty),
        frequency_penalty=fields.real("frequency_penalty", default.frequency_penalty),
        presence_penalty=fields.real("presence_penalty", default.presence_penalty),
        seed=_seed(fields),
        min_keep=fields.integer("min_keep", default=default.min_keep, low=0),
        grammar=fields.text("grammar"),
        json_schema="" if fields.text("grammar") else _json_schema(fields),
        schemas=_schemas(fields),
        n_probs=max(0, min(n_vocab, fields.integer("n_probs", "logprobs", default=0))),
        ignore_eos=fields.boolean("ignore_eos"),
        logit_bias=tuple(_logit_bias(fields, tokenizer, n_vocab)),
    )


def _seed(fields: Fields) -> int:
    seed = fields.integer("seed", default=RANDOM_SEED, low=-(2**63), high=2**63 - 1) & RANDOM_SEED
    return secrets.randbelow(RANDOM_SEED) if seed == RANDOM_SEED else seed


def _json_schema(fields: Fields) -> str:
    found = fields.find("json_schema")
    if found is None:
        return ""
    if not isinstance(found[1], dict):
        wrong_type("json_schema", "an object", found[1])
    return json.dumps(found[1] or {"type": "object"}, ensure_ascii=False)


def _schemas(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Pilotfish's own: schemas by the names under which `grammar` refers to them."""
    schemas = fields.object("grammar_schemas") if fields.text("grammar") else {}
    for name, schema in schemas.items():
        if not isinstance(schema, dict):
            wrong_type(f"grammar_schemas.{name}", "an object", schema)
    return tuple((name, json.dumps(schema, ensure_ascii=False)) for name, schema in schemas.items())


def _logit_bias(fields: Fields, tokenizer: Tokenizer, n_vocab: int) -> Iterator[tuple[int, float]]:
    found = fields.find("logit_bias")
    pairs = found[1] if found else []
    if isinstance(pairs, dict):
        pairs = [[_bias_key(key), bias] for key, bias in pairs.items()]
    if not isinstance(pairs, list):
        raise RequestError(f"Field 'logit_bias': type must be an array or an object, but is {kind(pairs)}")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise RequestError(f"Field 'logit_bias': expected [token, bias], got {shown(pair)}")
        bias = _bias(pair[1])
        for token in _bias_tokens(pair[0], tokenizer):
            if 0 <= token < n_vocab:
                yield token, bias


def _bias(value: Any) -> float:
    if value is False:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_BIAS:
        raise RequestError(
            f"Field 'logit_bias': a bias must be false or a number that a float holds, got {shown(value)}"
        )
    return float(value)


def _bias_key(key: str) -> int | str:
    """A key is an id if it is a number, else a text; what only looks like a number is most likely a mistake."""
    if not _LIKE_A_NUMBER.fullmatch(key):
        return key
    if not _ID.fullmatch(key):
        raise RequestError(f"Field 'logit_bias': a token must be an id or a text, got {shown(key)}")
    return int(key)


def _bias_tokens(token: Any, tokenizer: Tokenizer) -> list[int]:
    if isinstance(token, str):
        return tokenizer.encode(token, add_special=False, parse_special=False)
    if isinstance(token, int) and not isinstance(token, bool) and abs(token) < MAX_ID:
        return [token]
    raise RequestError(f"Field 'logit_bias': a token must be an id or a text, got {shown(token)}")


def _refuse_other_samplers(fields: Fields) -> None:
    switched_on = {
        "top_n_sigma": fields.real("top_n_sigma", -1.0) > 0,
        "xtc_probability": fields.real("xtc_probability", 0.0, 0.0, 1.0) > 0
        and fields.real("xtc_threshold", 0.1) <= 0.5,
        "dynatemp_range": fields.real("dynatemp_range", 0.0) > 0,
        "dry_multiplier": fields.real("dry_multiplier", 0.0) != 0,
        "mirostat": fields.integer("mirostat", default=0, low=0, high=2, clamp=True) != 0,
        "adaptive_target": fields.real("adaptive_target", -1.0, high=1.0) >= 0,
        "post_sampling_probs": fields.boolean("post_sampling_probs"),
        "grammar_lazy": fields.boolean("grammar_lazy"),
        "reasoning_budget_tokens": fields.integer("reasoning_budget_tokens", default=-1, low=-1, high=INT32_MAX) >= 0,
    }
    for name, on in switched_on.items():
        if on:
            unsupported(name, "is not available in this runner", STOCK_REMEDY)
    _check_sampler_order(fields.raw("samplers"))


def _check_sampler_order(samplers: Any) -> None:
    if samplers is None:
        return
    if isinstance(samplers, str):
        usual = samplers == _SAMPLER_CHARS
    elif isinstance(samplers, list):
        usual = (
            tuple(_SAMPLER_ALIASES.get(name, name) if isinstance(name, str) else name for name in samplers) == SAMPLERS
        )
    else:
        wrong_type("samplers", "an array or a string", samplers)
    if not usual:
        unsupported("samplers", f"only the default order {', '.join(SAMPLERS)} is available", STOCK_REMEDY)
