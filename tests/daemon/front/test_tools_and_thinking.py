"""Tools and thinking: Ollama's API and OpenAI's, with their official clients."""

from __future__ import annotations

import json

import ollama
import openai
import pytest

from tests.daemon.chat.answers.written import TOOLS

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris", "days": 3}}</tool_call>'
SAYS = f"<think>Hm.</think>So.{CALL}"
WISH = {"model": "caller", "messages": [{"role": "user", "content": f"echo:{SAYS}"}]}
TOOLS_JSON = [tool.to_json() for tool in TOOLS]
PARIS = {"city": "Paris", "days": 3}


def weather(city, **more):
    return {"function": {"name": "weather", "arguments": {"city": city}}, **more}


@pytest.fixture
def client(front):
    return ollama.AsyncClient(host=front.url)


@pytest.fixture
async def openai_client(front):
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_ollamas_client_gets_thinking_content_and_calls(client):
    answer = await client.chat(**WISH, tools=TOOLS_JSON, think=True)
    assert (answer.message.content, answer.message.thinking, answer.done_reason) == ("So.", "Hm.", "stop")
    (call,) = answer.message.tool_calls
    assert (call.function.name, dict(call.function.arguments)) == ("weather", PARIS)
    parts = [part async for part in await client.chat(**WISH, tools=TOOLS_JSON, stream=True)]
    assert "".join(part.message.content for part in parts) == "So."
    assert "".join(part.message.thinking or "" for part in parts) == "Hm."
    (call,) = (call for part in parts for call in part.message.tool_calls or ())
    assert dict(call.function.arguments) == PARIS
    assert parts[-1].done_reason == "stop"


async def test_a_call_has_an_id_and_a_place(front):
    _, answer = await front.ask("/api/chat", {**WISH, "tools": TOOLS_JSON, "stream": False})
    (call,) = answer["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["function"] == {"index": 0, "name": "weather", "arguments": PARIS}


async def test_generate_has_thinking_of_its_own(client):
    answer = await client.generate("caller", "echo:<think>Hm.</think>Hi.", think=False)
    assert (answer.response, answer.thinking) == ("Hi.", "Hm.")


@pytest.mark.parametrize(
    ("think", "options"),
    [
        (None, None),
        (True, {"enable_thinking": True}),
        (False, {"enable_thinking": False}),
        ("low", {"enable_thinking": True, "reasoning_effort": "low"}),
    ],
)
async def test_thinking_is_the_templates_business(front, client, think, options):
    await client.chat(**WISH, think=think)
    (rendered,) = front.journal_of("template")
    assert rendered["body"].get("chat_template_kwargs") == options


async def test_openais_client_gets_reasoning_content_and_calls(openai_client):
    whole = await openai_client.chat.completions.create(**WISH, tools=TOOLS_JSON)
    async with openai_client.chat.completions.stream(**WISH, tools=TOOLS_JSON) as stream:
        streamed = await stream.get_final_completion()
    for found in (whole, streamed):
        (choice,) = found.choices
        assert (choice.message.content, choice.finish_reason) == ("So.", "tool_calls")
        (call,) = choice.message.tool_calls
        assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "weather", PARIS)
    assert whole.choices[0].message.reasoning == "Hm."


@pytest.mark.parametrize(
    ("choice", "sent", "names"),
    [
        ("auto", "auto", ["weather", "time"]),
        ("none", "none", ["weather", "time"]),
        ("required", "required", ["weather", "time"]),
        ({"type": "function", "function": {"name": "time"}}, "required", ["time"]),
    ],
)
async def test_the_choice_among_tools_reaches_the_runner(front, openai_client, choice, sent, names):
    wish = {**WISH, "tools": TOOLS_JSON, "tool_choice": choice, "parallel_tool_calls": False}
    await openai_client.chat.completions.create(**wish)
    body = front.journal_of("template")[0]["body"]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (sent, False)
    assert [tool["function"]["name"] for tool in body["tools"]] == names
    assert front.journal_of("completion")[0]["body"]["grammar"] == "root ::= .*"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "not among the tools"),
        ({"tool_choice": "perhaps"}, "invalid tool_choice"),
        ({"tool_choice": "required", "tools": []}, "no tools to choose from"),
        ({"tools": [5]}, "tools[0]"),
    ],
)
async def test_a_choice_that_is_none_is_refused(front, fields, says):
    status, answer = await front.ask("/v1/chat/completions", {**WISH, "tools": TOOLS_JSON, **fields})
    assert (status, says in answer["error"]["message"]) == (400, True), answer


async def test_calls_and_results_in_the_history_reach_the_runner(front):
    last = {"role": "user", "content": "echo:ok"}
    turn = {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [weather("Oslo")]}
    result = {"role": "tool", "content": "7", "tool_name": "weather"}
    await front.ask("/api/chat", {"model": "caller", "messages": [turn, result, last], "stream": False})
    call = weather("Oslo", id="a", type="function")
    call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    turn = {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [call]}
    result = {"role": "tool", "content": "7", "tool_call_id": "a"}
    await front.ask("/v1/chat/completions", {"model": "caller", "messages": [turn, result, last]})

    native, official = (entry["body"]["messages"][:2] for entry in front.journal_of("template"))
    for asked, answered in (native, official):
        assert (asked["reasoning_content"], asked["tool_calls"][0]["function"]["name"]) == ("Hm.", "weather")
        assert (answered["name"], answered["content"]) == ("weather", "7")
    assert official[1]["tool_call_id"] == official[0]["tool_calls"][0]["id"] == "a"


async def test_a_call_that_breaks_off_is_a_text(front):
    _, answer = await front.ask(
        "/api/chat", {**WISH, "tools": TOOLS_JSON, "stream": False, "options": {"num_predict": 20}}
    )
    message = answer["message"]
    assert answer["done_reason"] == "length"
    assert "tool_calls" not in message
    assert message["content"].startswith("So.weather({")


async def test_what_a_model_can_do_is_told(client):
    assert (await client.show("caller")).capabilities == ["completion", "tools", "thinking"]


async def test_every_token_keeps_its_probability_though_it_is_told_later(front):
    wish = {**WISH, "tools": TOOLS_JSON, "logprobs": True}
    whole = (await front.ask("/api/chat", {**wish, "stream": False}))[1]
    parts = await front.lines("/api/chat", wish)
    told = [one["token"] for part in parts for one in part.get("logprobs", ())]
    assert "".join(told) == "".join(one["token"] for one in whole["logprobs"]) == SAYS
