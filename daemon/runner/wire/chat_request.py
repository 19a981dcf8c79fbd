"""The body of `/v1/chat/completions`, turned into a conversation and the fields of a completion."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pilotfish.daemon.chat.answers.answer_format import CHANNELS, AnswerReading, always_read, call_format_of
from pilotfish.daemon.chat.answers.call_grammar import Constraint, constraint
from pilotfish.daemon.chat.answers.grammar_writer import CallWish
from pilotfish.daemon.chat.chat_template import ChatTemplate, Conversation
from pilotfish.daemon.http.json_text import shown
from pilotfish.daemon.runner.wire.chat_conversation import read_conversation
from pilotfish.daemon.runner.wire.chat_tools import TOOLS_REMEDY, ToolChoice, read_tool_choice
from pilotfish.daemon.runner.wire.fields import Fields, unsupported
from pilotfish.daemon.runner.wire.request_fields import leave_chat_switches_on
from pilotfish.hooks.errors import RequestError

DEFAULT_TOP_LOGPROBS = 20
_SCHEMA_FORMATS = ("json_object", "json_schema")
_MAY_REASON = re.compile("think|thought|reason|analysis", re.IGNORECASE)  # in the text of a template
_REASONING_FORMATS = ("none", "auto", "deepseek")


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A chat as the model gets it, and how its answer is read. `constraint` holds calls to the tools' schemas."""

    prompt: str
    reading: AnswerReading = field(default_factory=AnswerReading)
    constraint: Constraint = field(default_factory=Constraint)

    def to_json(self) -> dict[str, Any]:
        """What `/apply-template` tells a client that reads the answer itself: how, and the fields of a completion."""
        fields = {**self.constraint.fields(), "preserved_tokens": list(self.reading.markers)}
        return {"reading": self.reading.to_json(), "completion": fields}


def prepare_chat(body: Mapping[str, Any], template: ChatTemplate) -> PreparedChat:
    """The chat in `body`. Raises RequestError for malformed ones, UnsupportedRequest for images, audio, and for tools
    and reasoning that are not known in this template. Blocks, as templates do."""
    fields = Fields(body)
    leave_chat_switches_on(fields)
    if fields.raw("functions"):
        unsupported("functions", "functions are called as tools here", "send them as tools")
    conversation = read_conversation(body, template)
    calls = _calls(fields, conversation, template)
    thoughts = _thoughts(fields, template)
    rendered = template.rendered(conversation)
    if not _answers_freely(fields):  # then all of it is content
        return PreparedChat(
            rendered.prompt,
            AnswerReading(begun=rendered.begun, continued=True) if conversation.continues else AnswerReading(),
        )
    reading = AnswerReading(
        calls=calls or always_read(template.source),
        reasoning=template.traits.reasoning,
        tools=conversation.tools if calls else (),
        begun=rendered.begun,
        continued=conversation.continues,
        thoughts=thoughts,
    )
    several = fields.boolean("parallel_tool_calls", template.traits.parallel_calls) if calls else False
    required = read_tool_choice(fields) is ToolChoice.REQUIRED
    wish = CallWish(required, several, template.traits.call_space if calls else "")
    return PreparedChat(rendered.prompt, reading, constraint(reading, wish))


def leave_to_stock(body: Mapping[str, Any], template: ChatTemplate) -> None:
    """Raises UnsupportedRequest for what stock does otherwise than this runner; for where there is a stock server.

    Stock lets the model put a structured answer into a code fence and takes it out again, and takes an answer apart
    for every template in which it finds a way of reasoning, also in ways that are not known here.
    """
    fields = Fields(body)
    if not _answers_freely(fields):
        unsupported("response_format", "stock reads structured answers in its own way", "ask stock")
    if fields.raw("reasoning_format", "auto") == "none" or not _MAY_REASON.search(template.source):
        return
    if template.traits.reasoning is None and call_format_of(template.source) != CHANNELS:
        unsupported("reasoning_format", "this model may reason before it answers", "ask stock")


def _answers_freely(fields: Fields) -> bool:
    form = Fields(fields.object("response_format")).raw("type", "text")
    return form not in _SCHEMA_FORMATS and fields.raw("json_schema") is None


def completion_body(body: Mapping[str, Any], chat: PreparedChat) -> dict[str, Any]:
    """The same request as a body of `/completion`; sampling fields pass through untouched."""
    fields = Fields(body)
    preserved = [*fields.array("preserved_tokens"), *chat.reading.markers]
    changed: dict[str, Any] = {"prompt": chat.prompt, "logprobs": None, "preserved_tokens": preserved}
    if "grammar" in body or "json_schema" in body or "response_format" in body:
        changed |= _constraint(fields)
    if fields.boolean("logprobs"):
        changed["n_probs"] = fields.integer("top_logprobs", default=DEFAULT_TOP_LOGPROBS, low=0)
    elif fields.find("top_logprobs"):
        raise RequestError("top_logprobs requires logprobs to be set to true")
    return {**body, **changed, **chat.constraint.fields()}


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


def _calls(fields: Fields, conversation: Conversation, template: ChatTemplate) -> str:
    """In which way the answer calls tools; empty if it must not."""
    choice = read_tool_choice(fields)
    if not conversation.tools:
        if choice is ToolChoice.REQUIRED:
            unsupported("tool_choice", "there are no tools to choose from", TOOLS_REMEDY)
        return ""
    if choice is ToolChoice.NONE:
        return ""
    if fields.find("grammar"):
        raise RequestError("Cannot use custom grammar constraints with tools.")
    if not _answers_freely(fields):
        unsupported("response_format", "an answer is structured, or may call tools", "send one of them")
    if fields.boolean("logprobs") and fields.boolean("stream"):
        raise RequestError("logprobs is not supported with tools + stream")
    return template.traits.calls


def _thoughts(fields: Fields, template: ChatTemplate) -> bool:
    """Whether reasoning is told apart. Raises UnsupportedRequest where the model may reason in an unknown way."""
    wanted = fields.raw("reasoning_format", "auto")
    if wanted == "deepseek-legacy":
        unsupported("reasoning_format", "reasoning that is part of the content, too", 'send "deepseek" or "none"')
    if wanted not in _REASONING_FORMATS:
        raise RequestError(f"Unknown reasoning format: {shown(wanted)}")
    if wanted == "none":
        return False
    if template.thinks and template.traits.reasoning is None and call_format_of(template.source) != CHANNELS:
        unsupported(
            "reasoning_format",
            "this model may reason before it answers, in a way that is not known here",
            'set it to "none" to get both as one text',
        )
    return True
