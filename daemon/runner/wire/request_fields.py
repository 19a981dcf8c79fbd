"""Every field of a request that llama-server documents, and what becomes of it here.

A field is *served*, changes *nothing* (in stock neither, as it is sent), or has the whole request *relayed* to the
stock server beside the runner, where there is one; elsewhere the request is refused by the field's name. Fields that
nobody documents are ignored, as stock does. docs/compatibility.md shows this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pilotfish.daemon.runner.wire.fields import Fields, unsupported

STOCK_REMEDY = "leave it out, or turn speculation off for this model to use the stock server"


class FieldHandling(StrEnum):
    """What becomes of a field."""

    SERVED = "served"
    NOTHING = "nothing to do"
    RELAYED = "relayed"


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field, by its names. `asks` is a value with which a relayed one is relayed."""

    names: tuple[str, ...]
    handling: FieldHandling
    about: str
    asks: Any = None


def _served(names: str, about: str) -> RequestField:
    return RequestField(tuple(names.split()), FieldHandling.SERVED, about)


def _nothing(names: str, about: str) -> RequestField:
    return RequestField(tuple(names.split()), FieldHandling.NOTHING, about)


def _relayed(names: str, about: str, asks: Any) -> RequestField:
    return RequestField(tuple(names.split()), FieldHandling.RELAYED, about, asks)


COMPLETION = (
    _served("prompt", "a text, ids, both mixed, an object with `prompt_string`, or a list of these"),
    _relayed("prompt", "with `multimodal_data`", {"prompt_string": "a", "multimodal_data": ["aGk="]}),
    _served("stream stream_options return_tokens response_fields sse_ping_interval", "the form of the answer"),
    _served("timings_per_token", "what came from the cache is counted as read until the last one"),
    _served("cache_prompt", "whether an earlier request's cells may be used"),
    _served("id_slot", "which slot answers; a number beyond the last one begins from the first again"),
    _served("n_predict max_tokens max_completion_tokens", "the budget; -1 is the launch's"),
    _served("t_max_predict_ms", "a line break after that time ends the answer"),
    _served("n_keep n_discard", "what a full context keeps and forgets, where the launch says `--context-shift`"),
    _served("stop ignore_eos logit_bias", "malformed entries of `logit_bias` are refused, where stock skips them"),
    _served("temperature top_k top_p min_p typical_p min_keep seed", "sampling"),
    _served("repeat_last_n repeat_penalty frequency_penalty presence_penalty", "penalties"),
    _served("grammar json_schema preserved_tokens", "constraints; a schema that cannot be kept is refused"),
    _served("n_probs logprobs", "probabilities before sampling"),
    _served("samplers", "in the usual order"),
    _relayed("samplers", "in any other order", ["top_k", "temperature"]),
    _relayed("n_cmpl n", "more than one answer, up to the launch's slots", 2),
    _relayed("n_indent", "an answer that ends with a line less indented", 2),
    _relayed("n_cache_reuse", "pieces of an earlier prompt moved to other places", 16),
    _relayed("top_n_sigma", "above 0", 1.0),
    _relayed("xtc_probability", "above 0, with an `xtc_threshold` of at most 0.5", 0.5),
    _relayed("dynatemp_range", "above 0", 0.5),
    _relayed("dry_multiplier", "other than 0", 0.8),
    _relayed("mirostat", "1 or 2", 2),
    _relayed("adaptive_target", "from 0 on", 0.5),
    _relayed("post_sampling_probs", "true", True),
    _relayed("backend_sampling", "true", True),
    _relayed("grammar_lazy", "true", True),
    _relayed("reasoning_budget_tokens", "from 0 on", 10),
    _relayed("lora", "with a scale other than 0", [{"id": 0, "scale": 1.0}]),
    _relayed("verbose", "true", True),
    _relayed("return_progress", "true, in a stream", True),
    _nothing("xtc_threshold dynatemp_exponent mirostat_tau mirostat_eta adaptive_decay", "details of what is off"),
    _nothing("dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers", "details of what is off"),
    _nothing("grammar_triggers grammar_type", "without `grammar_lazy` and tools"),
    _nothing("chat_format chat_parser parse_tool_calls generation_prompt reasoning_in_content", "chats set them"),
    _nothing("reasoning_budget_start_tag reasoning_budget_end_tag reasoning_budget_end_tags", "without a budget"),
    _nothing("reasoning_budget_message", "without a budget"),
    _nothing("model user", "there is one model, and nobody is told apart"),
)
TEXT = (
    _relayed("echo", "true", True),
    _relayed("best_of", "more than 1", 2),
    _relayed("suffix", "a text", "end"),
)
CHAT = (
    _served("messages", "texts of every role, reasoning, tool calls and their results; the template renders them"),
    _relayed("messages", "with tools where the template does not show them in a known way, with images or audio", [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]}]),
    _served("add_generation_prompt chat_template_kwargs reasoning_effort", "what the template is given"),
    _served("top_logprobs", "with `logprobs`"),
    _served("response_format", "text"),
    _relayed("response_format", "a structured answer: stock reads those in its own way", {"type": "json_object"}),
    _served("tools parallel_tool_calls", "where the template calls them in a known way; arguments keep to the schemas"),
    _relayed("tools", "where it does not", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
    _relayed("functions", "any", [{"name": "f", "parameters": {}}]),
    _served("tool_choice", "`auto`, `none` and `required`"),
    _relayed("tool_choice", "a function by its name", {"type": "function", "function": {"name": "f"}}),
    _relayed("continue_final_message", "true, or what part of the message", True),
    _relayed("reasoning_control", "true", True),
    _relayed("thinking_budget_tokens", "from 0 on", 10),
    _relayed("echo", "true", True),
    _served("reasoning_format", "`none`, `auto` and `deepseek`"),
    _relayed("reasoning_format", "`deepseek-legacy`; other than `none`, where the template may let the model reason in "
        "a way that is not known", "deepseek-legacy"),
)  # fmt: skip


def leave_switched_on(fields: Fields) -> None:
    """Raises UnsupportedRequest for a switch that only stock has, if it is on."""
    for name in ("verbose", "backend_sampling"):
        if fields.boolean(name):
            unsupported(name, "is not available in this runner", STOCK_REMEDY)
    if fields.boolean("return_progress") and fields.boolean("stream"):
        unsupported("return_progress", "the progress of a prompt is not reported", STOCK_REMEDY)
    if fields.integer("n_cache_reuse", default=0, low=0) > 0:
        unsupported("n_cache_reuse", "pieces of an earlier prompt are not moved", STOCK_REMEDY)


def leave_chat_switches_on(fields: Fields) -> None:
    """The same for `/v1/chat/completions`."""
    for name in ("reasoning_control", "echo"):
        if fields.boolean(name):
            unsupported(name, "is not available in this runner", STOCK_REMEDY)
    if fields.raw("continue_final_message", False) not in (False, ""):
        unsupported("continue_final_message", "a last message of the assistant is continued anyway", STOCK_REMEDY)
    if fields.integer("thinking_budget_tokens", default=-1, low=-1) >= 0:
        unsupported("thinking_budget_tokens", "reasoning is not counted", STOCK_REMEDY)
