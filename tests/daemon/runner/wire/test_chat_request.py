"""Bodies of `/v1/chat/completions`: the conversation in them, and the completion they stand for."""

from __future__ import annotations

import pytest

from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate
from pilotfish.daemon.runner.wire.chat_conversation import read_conversation
from pilotfish.daemon.runner.wire.chat_request import PreparedChat, completion_body, leave_to_stock, prepare_chat
from pilotfish.daemon.runner.wire.request_fields import CHAT, FieldHandling
from pilotfish.hooks.errors import RequestError, UnsupportedRequest

HI = [{"role": "user", "content": "hi"}]


def test_the_last_assistant_message_is_left_open():
    body = {"messages": [*HI, {"role": "assistant", "content": "The answer "}]}
    template = ChatTemplate(CHATML)
    conversation = read_conversation(body, template)
    assert conversation.continues
    assert template.render(conversation).endswith("<|im_start|>assistant\nThe answer ")


def test_template_options_reach_the_template():
    template = ChatTemplate("{{ color }} {{ reasoning_effort }}")
    body = {"messages": HI, "chat_template_kwargs": {"color": "red"}, "reasoning_effort": "low"}
    assert template.render(read_conversation(body, template)) == "red low"


def test_options_cannot_replace_the_messages():
    template = ChatTemplate("{{ messages[0].content }}")
    body = {"messages": HI, "chat_template_kwargs": {"messages": [{"content": "other"}]}}
    assert template.render(read_conversation(body, template)) == "hi"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "'messages' is required"),
        ({"messages": "x"}, "an array"),
        ({"messages": ["x"]}, "an object"),
        ({"messages": [{"content": "x"}]}, "'role'"),
        ({"messages": [{"role": 5, "content": "x"}]}, "'role'"),
        ({"messages": [{"role": "user"}]}, "must contain 'content'"),
        ({"messages": [{"role": "assistant"}]}, "must contain 'content' or 'tool_calls'"),
        ({"messages": [{"role": "user", "content": 5}]}, "a string or an array"),
        ({"messages": [{"role": "user", "content": [5]}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content"),
        ({"messages": [{"role": "assistant", "content": "a"}] * 2}, "2 or more assistant"),
        ({"messages": HI, "chat_template_kwargs": {"enable_thinking": "yes"}}, "enable_thinking"),
    ],
)
def test_malformed_chats_are_refused(body, says):
    with pytest.raises(RequestError, match=says):
        read_conversation(body, ChatTemplate(CHATML))


@pytest.mark.parametrize(
    ("body", "schema"),
    [
        ({"response_format": {"type": "json_object"}}, {}),
        ({"response_format": {"type": "json_object", "schema": {"type": "array"}}}, {"type": "array"}),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1]}}}}, {"enum": [1]}),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None}, None),
        ({"response_format": {}}, None),
        ({"response_format": {"type": "json_object", "schema": None}}, {}),
        ({"response_format": {"type": "json_object"}, "json_schema": {"type": "string"}}, {"type": "string"}),
        ({"response_format": {"type": "json_schema"}}, {}),  # which is any object
        ({"response_format": {"type": "json_schema", "json_schema": None}}, {}),
        ({"response_format": {"type": "json_schema", "schema": {"type": "array"}}}, {}),
        ({"json_schema": {"type": "string"}}, {"type": "string"}),
    ],
)
def test_a_response_format_becomes_a_schema(body, schema):
    assert completion_body(body, PreparedChat("p"))["json_schema"] == schema


def test_sampling_fields_pass_through_and_logprobs_are_counted():
    body = completion_body(
        {"temperature": 0.1, "max_tokens": 3, "logprobs": True, "top_logprobs": 4}, PreparedChat("p")
    )
    assert (body["prompt"], body["temperature"], body["max_tokens"], body["n_probs"]) == ("p", 0.1, 3, 4)
    assert completion_body({"logprobs": True}, PreparedChat("p"))["n_probs"] == 20
    assert "n_probs" not in completion_body({"logprobs": False}, PreparedChat("p"))


@pytest.mark.parametrize(
    "body",
    [
        {"top_logprobs": 2},
        {"grammar": "root ::= [0-9]", "json_schema": {"type": "object"}},
        {"response_format": {"type": "yaml"}},
        {"response_format": {"type": "JSON_SCHEMA "}},
        {"response_format": "json"},
    ],
)
def test_contradictions_are_refused(body):
    with pytest.raises(RequestError):
        completion_body(body, PreparedChat("p"))


def taken(body, template):
    leave_to_stock(body, template)
    prepare_chat(body, template)


@pytest.mark.parametrize("field", [field for field in CHAT if field.handling is FieldHandling.RELAYED])
def test_every_field_that_is_relayed_is_not_taken(field):
    thinks = "{% if enable_thinking %}<think>{% endif %}" if field.names == ("reasoning_format",) else ""
    for name in field.names:
        with pytest.raises(UnsupportedRequest, match=f"Field '{name}'"):
            taken({"messages": HI, name: field.asks}, ChatTemplate(CHATML + thinks))
