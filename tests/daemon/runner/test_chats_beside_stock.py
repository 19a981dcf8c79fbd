"""Chats with tools and reasoning beside a stock llama-server with the same template: the same prompts and messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from tests.daemon.chat.answers.written import TOOLS
from tests.daemon.chat.family_templates import FAMILIES, OPEN_TAG, TAGGED_THINKING, THINKING
from tests.daemon.runner.settings import SETTINGS
from tests.server_processes import RUNNER, running, stock_server

pytestmark = [pytest.mark.model, pytest.mark.stock]

TEMPLATES = {**FAMILIES, "thinking": THINKING, "tagged, thinking": TAGGED_THINKING, "open": OPEN_TAG}
HI = {"role": "user", "content": "What is the weather?"}
TOOLS_JSON = [tool.to_json() for tool in TOOLS]
CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}, "id": "abcdef123"}
CALLED = [HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
RESULT = {"role": "tool", "content": "7 degrees", "tool_call_id": "abcdef123", "name": "weather"}


def asked_before(city, id):
    call = {"type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}, "id": id}
    return [
        {"role": "user", "content": f"Weather in {city}?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


# After some examples even a small model calls the function.
EXAMPLES = [
    *(turn for n, city in enumerate(("London", "Rome", "Oslo", "Bonn")) for turn in asked_before(city, f"abcdef10{n}")),
    {"role": "user", "content": "Weather in Paris?"},
]
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


def asked_of(family):
    """How calls are asked for (choice, whether several): in all ways of one family, in three of each other."""
    if family == "hermes":
        return list(itertools.product(("auto", "required", "none"), (True, False)))
    if family == "open":  # shows no tools: ours relays what has some
        return []
    if family == "mistral-ids":  # stock wants a marker twice that such models, and this template, write once
        return [("none", True)]
    if family == "channels":  # this model goes on behind a call, which those that have channels do not
        return [("auto", True), ("required", False)]
    return [("auto", True), ("required", False), ("none", True)]


@pytest.fixture(scope="module", params=TEMPLATES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def servers(family, smollm2_path, state, tmp_path_factory) -> Iterator[tuple]:
    """Our runner and stock, with that family's template."""
    folder = tmp_path_factory.mktemp("family")
    (folder / "template.jinja").write_text(TEMPLATES[family])
    flags = (*SETTINGS, "--chat-template-file", str(folder / "template.jinja"))
    with (
        running(RUNNER, smollm2_path, folder / "ours", *flags, env=state) as ours,
        running(stock_server(), smollm2_path, folder / "stocks", *flags) as stocks,
    ):
        yield ours, stocks


def without_ids(message):
    calls = [{**call, "id": ""} for call in message.pop("tool_calls", ())]
    return {**message, "tool_calls": calls}


def streamed(server, **body):
    """The message that a stream makes, and why it ended."""
    message, reason = {"content": "", "reasoning_content": "", "calls": []}, None
    with server.http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    for choice in (choice for line in lines for choice in json.loads(line)["choices"]):
        delta, reason = choice["delta"], choice["finish_reason"] or reason
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["calls"]):
                message["calls"].append([call["function"]["name"], ""])
            message["calls"][call["index"]][1] += call["function"].get("arguments", "")
    return message, reason


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


def test_the_same_calls(servers, family):
    for choice, several in asked_of(family):
        body = {"messages": EXAMPLES, "tools": [TOOLS_JSON[0]], "tool_choice": choice, "parallel_tool_calls": several}
        body |= {"temperature": 0, "max_tokens": 48}
        ours, theirs = (server.post("/v1/chat/completions", **body) for server in servers)
        if theirs.status_code != 200:
            assert "does not match the expected" in theirs.text, "stock gives up what it cannot read"
            assert ours.status_code == 200
            continue
        same_calls(ours.json(), theirs.json(), called=family == "hermes" and choice != "none")
        ours, theirs = (streamed(server, **body) for server in servers)
        assert ours == theirs, (choice, several)


def same_calls(ours, theirs, called):
    for answer in (ours, theirs):
        answer["choices"][0]["message"] = without_ids(answer["choices"][0]["message"])
    assert ours["choices"] == theirs["choices"]
    assert ours["usage"]["completion_tokens"] == theirs["usage"]["completion_tokens"]
    if called:
        assert theirs["choices"][0]["message"]["tool_calls"], "the examples are not enough: nothing is compared"
