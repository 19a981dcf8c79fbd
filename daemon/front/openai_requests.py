"""OpenAI's completion requests, translated to Ollama's as Ollama's own compatibility layer does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.chat.chat_roles import has_tools
from pilotfish.daemon.front.bodies import Body
from pilotfish.daemon.front.requests import (
    MAX_TOP_LOGPROBS,
    AnswerSettings,
    ChatRequest,
    GenerateRequest,
    Message,
    parse_calls,
    parse_format,
    parse_tools,
)
from pilotfish.daemon.http.json_text import shown
from pilotfish.hooks.errors import RequestError

Tools = tuple[Mapping[str, Any], ...]

_CHOICES = ("auto", "none", "required")
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "ultra", "max")


@dataclass(frozen=True, slots=True)
class Stream:
    """How the client wants its answer."""

    stream: bool
    include_usage: bool


def parse_stream(body: Body) -> Stream:
    """`stream` is false by default, unlike Ollama's own."""
    options = Body(body.get("stream_options", dict, {}))
    return Stream(body.get("stream", bool, False), options.get("include_usage", bool, False))


def parse_chat_completion(body: Body) -> ChatRequest:
    """A body of `/v1/chat/completions`. Raises RequestError naming the field at fault."""
    messages = body.get("messages", list, [])
    if not messages:
        raise RequestError("[] is too short - 'messages'")
    top = body.get("top_logprobs", int, 0)
    settings = _settings(body, logprobs=body.get("logprobs", bool, False), top=top, schema=_schema(body))
    parts = tuple(part for index, message in enumerate(messages) for part in _messages(index, message))
    older = [{"function": function} for function in body.get("functions", list, [])]  # OpenAI's form before tools
    tools = parse_tools(Body({"tools": [*body.get("tools", list, []), *older]}))
    choice, tools = _chosen(body.fields.get("tool_choice"), tools)
    return ChatRequest(settings, _with_names(parts), tools, choice, body.boolean("parallel_tool_calls"))


def _chosen(choice: Any, tools: Tools) -> tuple[str, Tools]:
    """How to choose, and among which: a function that is named is the only one, and has to be called."""
    if isinstance(choice, dict):
        named = Body(choice).get("function", dict, {}).get("name")
        chosen = tuple(tool for tool in tools if tool["function"]["name"] == named)
        if not chosen:
            raise RequestError(f"tool_choice names a function that is not among the tools: {shown(named)}")
        return "required", chosen
    if choice not in (None, *_CHOICES):
        raise RequestError(
            f"invalid tool_choice: {shown(choice)} (must be one of {', '.join(_CHOICES)}, or a function)"
        )
    if choice == "required" and not tools:
        raise RequestError("tool_choice is required, and there are no tools to choose from")
    return choice or "auto", tools


def _with_names(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Results with the names of the functions whose calls have their ids, as Ollama looks them up."""
    names = {call.get("id"): call["function"]["name"] for message in messages for call in message.calls}
    return tuple(
        replace(message, tool_name=message.tool_name or names.get(message.tool_call_id, ""))
        if message.tool_call_id
        else message
        for message in messages
    )


def parse_completion(body: Body) -> GenerateRequest:
    """A body of `/v1/completions`. `prompt` is one string (or a list of one)."""
    prompt = body.fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str | None):
        raise RequestError("prompt must be one string; send one request for each prompt, and text rather than ids")
    top = body.get("logprobs", int, 0)
    settings = _settings(body, logprobs=top > 0, top=top, schema=None)
    return GenerateRequest(settings, prompt=prompt or "", suffix=body.get("suffix", str, ""))


def _settings(body: Body, *, logprobs: bool, top: int, schema: Any) -> AnswerSettings:
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise RequestError(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}")
    if (body.integer("n") or 1) != 1:
        raise RequestError("n must be 1; send one request for each answer")
    return AnswerSettings(
        model=body.get("model", str, ""),
        stream=body.get("stream", bool, False),
        options=_options(body),
        schema=parse_format(schema),
        think=_think(body),
        logprobs=logprobs,
        top_logprobs=top,
        debug_render_only=body.get("_debug_render_only", bool, False),
    )


def _options(body: Body) -> dict[str, Any]:
    """Sampling options; OpenAI's defaults for temperature and top_p are 1. `speculate` is pilotfish's own field."""
    most = body.integer("max_tokens")
    options = {
        "temperature": _or(body.number("temperature"), 1.0),
        "top_p": _or(body.number("top_p"), 1.0),
        "num_predict": _or(most, body.integer("max_completion_tokens")),
        "seed": body.integer("seed"),
        "frequency_penalty": body.number("frequency_penalty"),
        "presence_penalty": body.number("presence_penalty"),
        "stop": _stop(body.fields.get("stop")),
        "speculate": body.boolean("speculate"),
    }
    return {name: value for name, value in options.items() if value is not None}


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _stop(value: Any) -> list[str] | None:
    if value is None or isinstance(value, str):
        return [value] if value else None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RequestError("stop must be a string or an array of strings")
    return value


def _schema(body: Body) -> Any:
    response_format = Body(body.get("response_format", dict, {}))
    kind = response_format.get("type", str, "text").strip().lower()
    if kind == "json_object":
        return "json"
    if kind == "json_schema":
        return response_format.get("json_schema", dict, {}).get("schema")
    return None


def _think(body: Body) -> bool | str | None:
    reasoning = Body(body.get("reasoning", dict, {}))
    effort = reasoning.get("effort", str, "") or body.get("reasoning_effort", str, "")
    if effort in ("", "none"):
        return False if effort else None
    if effort not in _EFFORTS:
        allowed = ", ".join(f'"{name}"' for name in (*_EFFORTS, "none"))
        raise RequestError(f'invalid reasoning value: "{effort}" (must be one of {allowed})')
    return effort


def _messages(index: int, value: Any) -> list[Message]:
    """The message, or one for each part of its content, as Ollama takes them."""
    if not isinstance(value, dict):
        raise RequestError(f"messages[{index}] must be an object, got {shown(value)}")
    body = Body(value)
    role = {"function": "tool"}.get(role := body.get("role", str, "").lower(), role)
    messages = _contents(index, role, value)
    last = replace(
        messages[-1] if messages else Message(role, ""),
        thinking=body.get("reasoning", str, "") or body.get("reasoning_content", str, ""),
        calls=parse_calls(Body({"tool_calls": [*body.get("tool_calls", list, []), *_older_call(value)]})),
        tool_name=body.get("name", str, ""),
        tool_call_id=body.get("tool_call_id", str, ""),
        has_tools=has_tools(role, value),
    )
    return [*messages[:-1], last]


def _older_call(message: Mapping[str, Any]) -> list[Any]:
    """The call in OpenAI's form before tools."""
    return [{"function": message["function_call"]}] if message.get("function_call") else []


def _contents(index: int, role: str, value: Mapping[str, Any]) -> list[Message]:
    content = value.get("content")
    if isinstance(content, str):
        return [Message(role, content)]
    if isinstance(content, list):
        return [_part(index, role, part) for part in content]
    if isinstance(value.get("tool_calls"), list):  # an empty list counts as one, as in Ollama
        return [Message(role, "")]
    raise RequestError(f"messages[{index}].content must be a string or an array of parts, got {shown(content)}")


def _part(index: int, role: str, part: Any) -> Message:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return Message(role, part["text"])
    if kind in ("image_url", "input_audio"):
        return Message(role, "", has_images=True)
    raise RequestError(f"messages[{index}]: invalid message format")
