"""The body of `/v1/chat/completions`, turned into a conversation and the fields of a completion."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pilotfish.daemon.chat.chat_roles import has_tools
from pilotfish.daemon.chat.chat_template import ChatTemplate, Conversation
from pilotfish.daemon.http.json_text import kind
from pilotfish.daemon.runner.wire.fields import Fields, unsupported
from pilotfish.daemon.runner.wire.request_fields import leave_chat_switches_on
from pilotfish.hooks.errors import RequestError

DEFAULT_TOP_LOGPROBS = 20
_SCHEMA_FORMATS = ("json_object", "json_schema")
_MAY_REASON = re.compile("think|thought|reason|analysis", re.IGNORECASE)  # in the text of a template
_TOOLS_REMEDY = "leave tools out, or turn speculation off for this model to use the stock server"


def read_conversation(body: Mapping[str, Any], template: ChatTemplate) -> Conversation:
    """Raises RequestError for malformed messages, UnsupportedRequest for tools, images, audio and reasoning."""
    fields = Fields(body)
    _refuse(fields, template)
    messages = [_message(message) for message in _messages(fields)]
    extra = _template_options(fields)
    if not messages or messages[-1]["role"] != "assistant":
        return Conversation(messages, "", fields.boolean("add_generation_prompt", True), extra)
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise RequestError("Cannot have 2 or more assistant messages at the end of the list.")
    return Conversation(messages, messages[-1]["content"], False, extra)


def leave_to_stock(body: Mapping[str, Any], template: ChatTemplate) -> None:
    """Raises UnsupportedRequest for what stock does otherwise than this runner; for where there is a stock server.

    Stock lets the model put a structured answer into a code fence and takes it out again, and takes an answer apart
    for every template in which it finds a way of reasoning.
    """
    fields = Fields(body)
    form = Fields(fields.object("response_format")).raw("type", "text")
    if form in _SCHEMA_FORMATS or fields.raw("json_schema") is not None:
        unsupported("response_format", "stock reads structured answers in its own way", "ask stock")
    if _MAY_REASON.search(template.source) and fields.raw("reasoning_format", "auto") != "none":
        unsupported("reasoning_format", "this model may reason before it answers", "ask stock")


def completion_body(body: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """The same request as a body of `/completion`; sampling fields pass through untouched."""
    fields = Fields(body)
    changed: dict[str, Any] = {"prompt": prompt, "logprobs": None}
    if "grammar" in body or "json_schema" in body or "response_format" in body:
        changed |= _constraint(fields)
    if fields.boolean("logprobs"):
        changed["n_probs"] = fields.integer("top_logprobs", default=DEFAULT_TOP_LOGPROBS, low=0)
    elif fields.find("top_logprobs"):
        raise RequestError("top_logprobs requires logprobs to be set to true")
    return {**body, **changed}


def _constraint(fields: Fields) -> dict[str, Any]:
    grammar, schema = fields.text("grammar"), fields.raw("json_schema")
    if grammar and schema is not None:
        raise RequestError("Cannot use both json_schema and grammar; send one of them")
    wanted = Fields(fields.object("response_format"))
    form = wanted.text("type")
    if form == "json_object":
        schema = wanted.raw("schema", schema or {})
    elif form == "json_schema":
        schema = Fields(wanted.object("json_schema")).raw("schema", {})
    elif form not in ("", "text"):
        raise RequestError(f'response_format type must be "text", "json_object" or "json_schema", but got: {form}')
    return {"grammar": grammar, "json_schema": None if grammar else schema}


def _refuse(fields: Fields, template: ChatTemplate) -> None:
    leave_chat_switches_on(fields)
    for name in ("tools", "functions"):
        if fields.raw(name):
            unsupported(name, "tool calls are not parsed in this runner", _TOOLS_REMEDY)
    if fields.raw("tool_choice", "auto") not in ("auto", "none"):
        unsupported("tool_choice", "there are no tools to choose from in this runner", _TOOLS_REMEDY)
    if template.thinks and fields.raw("reasoning_format", "auto") != "none":
        unsupported(
            "reasoning_format",
            "this model may reason before it answers, and this runner does not take the two apart",
            'set it to "none" to get both as one text',
        )


def _messages(fields: Fields) -> list[Any]:
    if fields.find("messages") is None:
        raise RequestError("'messages' is required")
    messages = fields.raw("messages")
    if not isinstance(messages, list):
        raise RequestError("Expected 'messages' to be an array")
    return messages


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise RequestError(f"Expected every message to be an object, but got {kind(message)}")
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError("every message must have a 'role', a string")
    if has_tools(role, message):
        unsupported("messages", "tool calls and their results are not rendered in this runner", _TOOLS_REMEDY)
    if "content" not in message:
        wanted = "'content' or 'tool_calls'" if role == "assistant" else "'content'"
        raise RequestError(f"a message of role {role!r} must contain {wanted}")
    return {**message, "role": role, "content": _content(message["content"])}


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError("Expected 'content' to be a string or an array")
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    form = part.get("type") if isinstance(part, dict) else None
    if form == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if isinstance(form, str) and form != "text":
        unsupported("messages", f"content of type {form!r} is not supported by this runner", "send text only")
    raise RequestError("unsupported content[].type: every part needs a 'type' and a 'text'")


def _template_options(fields: Fields) -> dict[str, Any]:
    options = dict(fields.object("chat_template_kwargs"))
    if not isinstance(options.get("enable_thinking", True), bool):
        raise RequestError('invalid type for "enable_thinking": expected true or false')
    effort = fields.text("reasoning_effort")
    if effort and effort != "none":
        options["reasoning_effort"] = effort
    if effort == "none":
        options["enable_thinking"] = False
    return options
