"""Messages as llama-server hands them to a chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilotfish.daemon.chat.chat_roles import SYSTEM_ROLES
from pilotfish.hooks.errors import RequestError

Message = Mapping[str, Any]


def text_of(content: Any) -> str:
    """The text of a content, whose parts stand on lines of their own."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content)


def with_texts(messages: Sequence[Message]) -> list[Message]:
    """Contents in parts as one text, for templates that know no parts."""
    return [{**message, "content": text_of(message["content"])} for message in messages]


def with_object_arguments(messages: Sequence[Message]) -> list[Message]:
    """Arguments of calls as objects. Raises RequestError for those that are no JSON."""
    return [
        {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _with_object(call: Message) -> Message:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError as error:
        raise RequestError(f"Failed to parse tool call arguments as JSON: {error}") from error
    return {**call, "function": {**function, "arguments": arguments}}


def with_thinking(messages: Sequence[Message]) -> list[Message]:
    """What was thought under the key where the templates of gpt-oss look for it, which show it or a content."""
    adapted = []
    for message in messages:
        if message.get("reasoning_content"):
            message = {**message, "thinking": message["reasoning_content"]}
            if message.get("tool_calls"):
                message = {key: value for key, value in message.items() if key != "content"}
        adapted.append(message)
    return adapted


def with_blocks(messages: Sequence[Message]) -> list[Message]:
    """What was thought as a part of the content, where the templates of newer Mistral models look for it."""
    return [_with_blocks(message) if message["role"] in ("system", "assistant") else message for message in messages]


def _with_blocks(message: Message) -> Message:
    content, thought = message["content"], message.get("reasoning_content")
    blocks = [{"type": "thinking", "thinking": thought}] if thought else []
    blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**{key: value for key, value in message.items() if key != "reasoning_content"}, "content": blocks}


def folded(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages without system messages, whose texts lead the user messages that follow them."""
    held = ""
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            held += f"{text_of(message['content'])}\n"
        elif held and message["role"] == "user":
            yield {**message, "content": held + text_of(message["content"])}
            held = ""
        else:
            yield message
