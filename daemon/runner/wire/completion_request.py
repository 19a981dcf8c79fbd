"""A completion request, parsed once: what to generate, and how the client wants to hear about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.core.context_window import ContextShift
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.stop_words import MAX_BYTES
from pilotfish.daemon.runner.wire.fields import Fields, unsupported, wrong_type
from pilotfish.daemon.runner.wire.prompt_ids import read_prompts
from pilotfish.daemon.runner.wire.request_defaults import RequestDefaults
from pilotfish.daemon.runner.wire.request_fields import STOCK_REMEDY, leave_switched_on
from pilotfish.daemon.runner.wire.sampling_options import read_sampling
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Tokenizer

PING_SECONDS = 30  # llama-server's default


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
    n_keep: int = 0  # as the request says it: without BOS, -1 for the whole prompt
    n_discard: int = 0


NO_DEFAULTS = RequestDefaults()


def read_completion(
    body: Mapping[str, Any],
    tokenizer: Tokenizer,
    n_vocab: int,
    defaults: RequestDefaults = NO_DEFAULTS,
    *,
    adds_bos: bool = False,
) -> CompletionRequest:
    """Raises RequestError naming the field, UnsupportedRequest for what this runner does not do.

    `request_fields` lists all of them; others are ignored, as stock does. Pilotfish's own are `speculate` (default
    true), which set to false gives plain decoding, `context_shift`, which says for one request what a launch says for
    all, and `grammar_schemas`, the schemas that `grammar` refers to by name.
    `adds_bos`: the model's prompts begin with a token of the tokenizer's.
    """
    fields = Fields(body)
    if fields.find("prompt") is None:
        raise RequestError('"prompt" is missing; give a text or a list of token ids')
    _refuse(fields, defaults)
    sampling = read_sampling(fields, tokenizer, n_vocab)
    budget = fields.integer("n_predict", "max_completion_tokens", "max_tokens", default=-1, low=-1)
    slot = fields.integer("id_slot", default=-1, low=-1)
    template = GenerationRequest(
        prompt=(),
        sampling=sampling,
        n_predict=defaults.n_predict if budget < 0 else budget,
        stop=_stop(fields),
        cache_prompt=fields.boolean("cache_prompt", defaults.cache_prompt),
        speculate=fields.boolean("speculate", True),
        preserved=_preserved(fields, tokenizer),
        slot=None if slot < 0 else slot,
        line_ms=max(0, fields.integer("t_max_predict_ms", default=-1, low=-1, high=2**63 - 1)),
    )
    n_keep = fields.integer("n_keep", default=defaults.keep, low=-1)
    discard = fields.integer("n_discard", default=0, low=0)
    shifts = fields.boolean("context_shift", defaults.context_shift)

    def shift(ids: tuple[int, ...]) -> ContextShift | None:
        return ContextShift((len(ids) if n_keep < 0 else n_keep) + adds_bos, discard) if shifts else None

    return CompletionRequest(
        generations=tuple(
            replace(template, prompt=ids, shift=shift(ids)) for ids in read_prompts(body["prompt"], tokenizer, n_vocab)
        ),
        stream=fields.boolean("stream"),
        return_tokens=fields.boolean("return_tokens"),
        return_drafted=fields.boolean("return_drafted"),
        timings_per_token=fields.boolean("timings_per_token"),
        include_usage=Fields(fields.object("stream_options")).boolean("include_usage"),
        ping_seconds=fields.integer("sse_ping_interval", default=PING_SECONDS, low=-1),
        response_fields=_response_fields(fields),
        n_keep=n_keep,
        n_discard=discard,
    )


def _refuse(fields: Fields, defaults: RequestDefaults) -> None:
    if fields.integer("n_cmpl", "n", default=1, low=1, high=defaults.parallel) > 1:
        unsupported("n_cmpl", "one answer is generated for each prompt", "send the request again for each")
    if fields.integer("n_indent", default=0, low=0) > 0:
        unsupported("n_indent", "stopping at an indentation is not available", STOCK_REMEDY)
    leave_switched_on(fields)
    if any(not isinstance(adapter, dict) or adapter.get("scale", 1) != 0 for adapter in fields.array("lora")):
        unsupported("lora", "LoRA adapters are not applied in this runner", STOCK_REMEDY)


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
