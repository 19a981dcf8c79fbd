"""The tools of a chat, and how the model may choose among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.http.json_text import kind, shown
from pilotfish.daemon.runner.wire.fields import Fields, unsupported
from pilotfish.hooks.errors import RequestError

TOOLS_REMEDY = "leave tools out, or turn speculation off for this model to use the stock server"


class ToolChoice(StrEnum):
    """Whether the model may call, must not, or has to."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


def read_tools(fields: Fields) -> tuple[Tool, ...]:
    """The functions in `tools`. Raises RequestError for anything else there."""
    tools = fields.raw("tools", [])
    if not isinstance(tools, list):
        raise RequestError(f"Expected 'tools' to be an array, but got {kind(tools)}")
    return tuple(_tool(tool) for tool in tools)


def read_tool_choice(fields: Fields) -> ToolChoice:
    """Raises UnsupportedRequest for one named function, which stock reads as `auto`."""
    choice = fields.raw("tool_choice", ToolChoice.AUTO)
    if isinstance(choice, dict):
        unsupported(
            "tool_choice", "a function that is chosen by name", "send that one as the only tool, and `required`"
        )
    if choice not in tuple(ToolChoice):
        raise RequestError(f"Invalid tool_choice: {shown(choice)}")
    return ToolChoice(choice)


def _tool(tool: Any) -> Tool:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise RequestError(f'Unsupported tool type: {shown(tool)}; tools are of type "function"')
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
        raise RequestError(f"Missing tool function: {shown(tool)}; it needs a name")
    description, parameters = function.get("description", ""), function.get("parameters", {})
    if not isinstance(description, str | None) or not isinstance(parameters, dict | None):
        raise RequestError(f"the tool {name!r} needs a text as its description and a schema as its parameters")
    return Tool(name, description or "", parameters or {})


def read_call(call: Any) -> dict[str, Any]:
    """A call in the history, as a chat template sees it; its arguments are JSON text."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"a call in 'tool_calls' needs a function with a name, but got {shown(call)}")
    arguments = function.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    read = {"type": "function", "function": {"name": function["name"], "arguments": text}}
    return {**read, "id": call["id"]} if call.get("id") else read
