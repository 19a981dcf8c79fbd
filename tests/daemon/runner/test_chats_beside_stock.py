"""Chats with tools and reasoning beside a stock llama-server with the same template: the same prompts and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.daemon.runner.family_servers import TEMPLATES, TOOLS_JSON, both, streamed
from tests.plugins.drafters.tiny_llama import write_tiny_llama

pytestmark = [pytest.mark.model, pytest.mark.stock]

HI = {"role": "user", "content": "What is the weather?"}
CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}, "id": "abcdef123"}
CALLED = [HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
RESULT = {"role": "tool", "content": "7 degrees", "tool_call_id": "abcdef123", "name": "weather"}


CONVERSATIONS = {
    "plain": {"messages": [HI]},
    "tools": {"messages": [HI], "tools": TOOLS_JSON},
    "none": {"messages": [HI], "tools": TOOLS_JSON, "tool_choice": "none"},
    "history": {"messages": [*CALLED, RESULT], "tools": TOOLS_JSON},
    "history, no tools": {"messages": [*CALLED, RESULT, {"role": "assistant", "content": "Cold."}, HI]},
    "parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    },
    "system": {"messages": [{"role": "developer", "content": "Be brief."}, HI], "tools": TOOLS_JSON},
    "no thinking": {"messages": [HI], "chat_template_kwargs": {"enable_thinking": False}},
    "effort": {"messages": [HI], "reasoning_effort": "none"},
    "thought": {"messages": [HI, {"role": "assistant", "content": "Cold.", "reasoning_content": "Hm."}, HI]},
    "continued": {"messages": [HI, {"role": "assistant", "content": "It is"}]},
    "continued thought": {"messages": [HI, {"role": "assistant", "content": "It is", "reasoning_content": "Hm."}]},
    "continued in a thought": {"messages": [HI, {"role": "assistant", "content": "", "reasoning_content": "Hm."}]},
}
# Texts that a grammar makes the model write.
SAID = {
    "content": "Hi.",
    "thought": "<think>\nHm, a <b>.\n</think>\n\nHi there.\n",
    "closed": "Hm.\n</think>\n\nHi.",
    "empty": "<think>\n\n</think>\n\nHi.",
    "late": "Hi. <think>x</think>",
    "open": "<think>\nHm",
}
CHANNELLED = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi."


def said_by(family):
    """Texts that a model of this family writes: tags mean nothing to one with channels."""
    return {"channels": CHANNELLED} if family == "channels" else SAID


@pytest.fixture(scope="module", params=TEMPLATES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def servers(family, smollm2_path, state, tmp_path_factory) -> Iterator[tuple]:
    """With a model that decides nothing: a grammar says what it writes."""
    folder = tmp_path_factory.mktemp("family")
    with both(write_tiny_llama(folder / "tiny.gguf", smollm2_path), family, state, folder) as found:
        yield found


def test_the_same_prompts(servers, family):
    for name, body in CONVERSATIONS.items():
        if family == "open" and ("tools" in body or "history" in name):
            continue  # a template that shows no tools: ours are relayed, stock's dropped
        ours, theirs = (server.post("/apply-template", **body).json() for server in servers)
        assert ours == theirs, name


def test_the_same_messages_from_the_same_texts(servers, family):
    for name, text in said_by(family).items():
        body = {"messages": [HI], "grammar": f"root ::= {json.dumps(text)}", "temperature": 0}
        for form in ({}, {"reasoning_format": "none"}):
            ours, theirs = (server.post("/v1/chat/completions", **body, **form).json() for server in servers)
            assert ours["choices"] == theirs["choices"], (name, form)
            ours, theirs = (streamed(server, **body, **form) for server in servers)
            assert ours == theirs, (name, form)
