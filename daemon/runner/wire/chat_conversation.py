"""The conversation in a body of `/v1/chat/completions`: messages, tools, and options of the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.daemon.chat.chat_roles import has_tools
from pilotfish.daemon.chat.chat_template import ChatTemplate, Conversation
from pilotfish.daemon.http.json_text import kind
from pilotfish.daemon.runner.wire.chat_tools import TOOLS_REMEDY, read_call, read_tools
from pilotfish.daemon.runner.wire.fields import Fields, unsupported
from pilotfish.hooks.errors import RequestError


def read_conversation(body: Mapping[str, Any], template: ChatTemplate) -> Conversation:
    """The conversation in a body. Raises RequestError for malformed messages, UnsupportedRequest for those of images,
    audio, and of tools whose calls the template does not show."""
    fields = Fields(body)
    given = _messages(fields)
    if any(map(_is_of_tools, given)) and not template.traits.calls:
        unsupported("messages", "the model's chat template does not show tool calls in a known way", TOOLS_REMEDY)
    if fields.raw("tools") and not (template.traits.calls and template.traits.shows_tools):
        unsupported("tools", "the model's chat template does not show tools in a known way", TOOLS_REMEDY)
    messages = [_message(message) for message in given]
    extra = _template_options(fields)
    thinks = extra.pop("enable_thinking", True)
    continues = bool(messages) and messages[-1]["role"] == "assistant"
    if continues and len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise RequestError("Cannot have 2 or more assistant messages at the end of the list.")
    if continues and messages[-1].get("tool_calls"):
        raise RequestError("Cannot continue an assistant message that contains tool calls.")
    opens = not continues and fields.boolean("add_generation_prompt", True)
    return Conversation(messages, continues, opens, extra, read_tools(fields), thinks)


def _messages(fields: Fields) -> list[Any]:
    if fields.find("messages") is None:
        raise RequestError("'messages' is required")
    messages = fields.raw("messages")
    if not isinstance(messages, list):
        raise RequestError("Expected 'messages' to be an array")
    return messages


def _is_of_tools(message: Any) -> bool:
    return isinstance(message, dict) and has_tools(str(message.get("role")), message)


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise RequestError(f"Expected every message to be an object, but got {kind(message)}")
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError("every message must have a 'role', a string")
    if message.get("function_call"):
        unsupported("messages", "functions are called as tools here", "send the call in tool_calls")
    if "content" not in message and (role != "assistant" or "tool_calls" not in message):
        wanted = "'content' or 'tool_calls'" if role == "assistant" else "'content'"
        raise RequestError(f"a message of role {role!r} must contain {wanted}")
    read: dict[str, Any] = {"role": role, "content": _content(message.get("content"))}
    fields = Fields(message)
    for key in ("reasoning_content", "name", "tool_call_id"):
        if text := fields.text(key):
            read[key] = text
    if calls := fields.array("tool_calls"):
        read["tool_calls"] = [read_call(call) for call in calls]
    return read


def _content(content: Any) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError("Expected 'content' to be a string or an array")
    return [{"type": "text", "text": _part(part)} for part in content]


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
        options.pop("reasoning_effort", None)
    return options
