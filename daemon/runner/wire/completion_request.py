"""A completion request, parsed once: what to generate, and how the client wants to hear about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.stop_words import MAX_BYTES
from pilotfish.daemon.runner.wire.fields import INT32_MAX, Fields, unsupported, wrong_type
from pilotfish.daemon.runner.wire.prompt_ids import read_prompts
from pilotfish.daemon.runner.wire.sampling_options import read_sampling
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Tokenizer

PING_SECONDS = 30  # llama-server's default
_STOCK = "leave it out, or turn speculation off for this model to use the stock server"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One body of `/completion` or of the OpenAI endpoints. Each of `generations` is one prompt.

    `return_drafted` is pilotfish's own: every streamed chunk then says whether its token was drafted.
    """

    generations: tuple[GenerationRequest, ...]
    stream: bool = False
    return_tokens: bool = False
    return_drafted: bool = False
    timings_per_token: bool = False
    include_usage: bool = False
    ping_seconds: int = PING_SECONDS  # -1: never
    response_fields: tuple[str, ...] = ()
    n_keep: int = 0  # only reported back


def read_completion(
    body: Mapping[str, Any], tokenizer: Tokenizer, n_vocab: int, *, n_predict: int = -1
) -> CompletionRequest:
    """Raises RequestError naming the field, UnsupportedRequest for what this runner does not do.

    Unknown fields are ignored, as stock does. Pilotfish's own field `speculate` (default true) set to false gives
    plain decoding.
    """
    fields = Fields(body)
    if fields.find("prompt") is None:
        raise RequestError('"prompt" is missing; give a text or a list of token ids')
    _refuse(fields)
    sampling = read_sampling(fields, tokenizer, n_vocab)
    budget = fields.integer("n_predict", "max_completion_tokens", "max_tokens", default=n_predict, low=-1)
    stop = _stop(fields)
    slot = fields.integer("id_slot", default=-1, low=-1, high=INT32_MAX)
    cache_prompt, speculate = fields.boolean("cache_prompt", True), fields.boolean("speculate", True)
    preserved = _preserved(fields, tokenizer)
    return CompletionRequest(
        generations=tuple(
            GenerationRequest(
                ids, sampling, budget, stop, cache_prompt, speculate, preserved, slot=None if slot < 0 else slot
            )
            for ids in read_prompts(body["prompt"], tokenizer, n_vocab)
        ),
        stream=fields.boolean("stream"),
        return_tokens=fields.boolean("return_tokens"),
        return_drafted=fields.boolean("return_drafted"),
        timings_per_token=fields.boolean("timings_per_token"),
        include_usage=Fields(fields.object("stream_options")).boolean("include_usage"),
        ping_seconds=fields.integer("sse_ping_interval", default=PING_SECONDS, low=-1),
        response_fields=_response_fields(fields),
        n_keep=fields.integer("n_keep", default=0, low=-1),
    )


def _refuse(fields: Fields) -> None:
    fields.integer("n_cmpl", "n", default=1, low=1, high=1)
    if fields.integer("n_indent", default=0, low=0) > 0:
        unsupported("n_indent", "stopping at an indentation is not available", _STOCK)
    if fields.integer("t_max_predict_ms", default=-1, low=-1, high=INT32_MAX) > 0:
        unsupported("t_max_predict_ms", "a time limit is not available", "use n_predict, or close the connection")
    if any(not isinstance(adapter, dict) or adapter.get("scale", 1) != 0 for adapter in fields.array("lora")):
        unsupported("lora", "LoRA adapters are not applied in this runner", _STOCK)


def _stop(fields: Fields) -> tuple[str, ...]:
    stop = fields.raw("stop", [])
    words = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    for word in words:
        if not isinstance(word, str):
            wrong_type("stop", "a string", word)
    if sum(len(word.encode()) for word in words) > MAX_BYTES:
        raise RequestError(f"Field 'stop': the stop strings have more than {MAX_BYTES} bytes together; send fewer")
    return tuple(word for word in words if word)


def _preserved(fields: Fields, tokenizer: Tokenizer) -> frozenset[int]:
    texts = [text for text in fields.array("preserved_tokens") if isinstance(text, str)]
    encoded = (tokenizer.encode(text, add_special=False, parse_special=True) for text in texts)
    return frozenset(ids[0] for ids in encoded if len(ids) == 1)


def _response_fields(fields: Fields) -> tuple[str, ...]:
    names = fields.array("response_fields")
    if not all(isinstance(name, str) for name in names):
        raise RequestError("Field 'response_fields': expected an array of strings")
    return tuple(names)
