"""Chats with tools and reasoning, as a client of llama-server sees them."""

from __future__ import annotations

import json

import openai
import pytest

from pilotfish.daemon.core.generation import Outcome, OutputToken, StopType, Timings
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, FakeTokenizer
from tests.daemon.chat.answers.written import TOOLS, WRITTEN
from tests.daemon.chat.family_templates import CHANNELS, FAMILIES, HERMES, OPEN_TAG, TAGGED_THINKING, THINKING
from tests.daemon.runner.scripted import ScriptedGenerator, ask, events, serving

HI = [{"role": "user", "content": "hi"}]
WISH = {"messages": HI, "tools": [tool.to_json() for tool in TOOLS]}
CHAT = "/v1/chat/completions"
PARIS = {"city": "Paris", "days": 3}


class AnyText(FakeTokenizer):
    """Encodes every text, as one token."""

    def encode(self, text, *, add_special=True, parse_special=True):
        return [len(text) % 20 + 3]


def writes(text, stop=StopType.EOS, size=3):
    """A generator that writes a text in pieces of some characters."""
    engine = FakeEngine()
    engine.tokenizer = AnyText({}, engine.eog)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    batches = [[OutputToken(5, piece) for piece in pieces]]
    return ScriptedGenerator(batches, outcome=Outcome(stop, Timings(predicted_n=len(pieces))), engine=engine)


async def answer(text, template, path=CHAT, stop=StopType.EOS, **body):
    """The message of an answer, and why it ended."""
    async with serving(writes(text, stop), template) as client:
        status, found = await ask(client, path, **body)
    assert status == 200, found
    (choice,) = found["choices"]
    return choice["message"], choice["finish_reason"]


def put_together(chunks):
    """The message that a client makes of a stream."""
    message = {"content": "", "reasoning_content": "", "calls": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["calls"]):
                    assert call["type"] == "function"
                    message["calls"].append([call["id"], call["function"]["name"], ""])
                message["calls"][call["index"]][2] += call["function"].get("arguments", "")
    return message


@pytest.mark.parametrize("calls", FAMILIES)
async def test_calls_of_every_family(calls):
    message, reason = await answer(WRITTEN[calls], FAMILIES[calls], **WISH)
    assert (message["content"], reason) == ("So.", "tool_calls")
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather", "time"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == PARIS
    assert all(call["type"] == "function" and len(call["id"]) >= 9 for call in message["tool_calls"])


@pytest.mark.parametrize("calls", FAMILIES)
async def test_a_stream_says_the_same(calls):
    async with serving(writes(WRITTEN[calls]), FAMILIES[calls]) as client:
        first, *chunks, done = await events(client, CHAT, **WISH)
    message = put_together(chunks)
    assert (first["choices"][0]["delta"], done) == ({"role": "assistant", "content": None}, "[DONE]")
    assert message["content"] == "So."
    (id, name, arguments), (other, _, nothing) = message["calls"]
    assert (name, json.loads(arguments), json.loads(nothing)) == ("weather", PARIS, {})
    assert id != other
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_reasoning_apart_from_content():
    text = "<think>\nHm.\n</think>\n\nHi."
    message, reason = await answer(text, THINKING, messages=HI)
    assert message == {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm.\n"}
    assert reason == "stop"
    async with serving(writes(text), THINKING) as client:
        _, *chunks, _ = await events(client, CHAT, messages=HI)
    assert put_together(chunks) == {"content": "Hi.", "reasoning_content": "Hm.\n", "calls": []}


async def test_reasoning_that_the_template_has_begun():
    message, _ = await answer("Hm.</think>Hi.", OPEN_TAG, messages=HI)
    assert (message["reasoning_content"], message["content"]) == ("\nHm.", "Hi.")
    message, _ = await answer("Hm.</think>Hi.", OPEN_TAG, messages=HI, reasoning_format="none")
    assert message == {"role": "assistant", "content": "<think>\nHm.</think>Hi."}


async def test_a_call_ends_what_is_thought_where_models_do_so():
    text = "Hm.\n" + WRITTEN["tagged"].removeprefix("So.")
    message, _ = await answer(text, TAGGED_THINKING, **WISH)
    assert (message["reasoning_content"], message["content"], len(message["tool_calls"])) == ("Hm.\n", "", 2)
    message, _ = await answer("Hm.\n</think>\n\nHi.", TAGGED_THINKING, messages=HI)
    assert (message["reasoning_content"], message["content"]) == ("Hm.\n", "Hi.")


async def test_channels():
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi."
    message, _ = await answer(text, CHANNELS, messages=HI)
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hi.")


async def test_a_call_that_breaks_off_at_the_budget_is_told_as_far_as_it_goes():
    text = WRITTEN["hermes"][: WRITTEN["hermes"].index(', "days"')]
    message, reason = await answer(text, HERMES, stop=StopType.LIMIT, **WISH)
    (call,) = message["tool_calls"]
    assert (call["function"]["arguments"], reason) == ('{"city": "Paris"', "length")


async def test_tools_that_must_not_be_called_are_in_the_prompt_and_calls_stay_text():
    generator = writes(WRITTEN["hermes"])
    async with serving(generator, HERMES) as client:
        _, found = await ask(client, CHAT, **WISH, tool_choice="none")
        _, rendered = await ask(client, "/apply-template", **WISH, tool_choice="none")
    assert found["choices"][0]["message"] == {"role": "assistant", "content": WRITTEN["hermes"]}
    assert '"name": "weather"' in rendered["prompt"]
    assert generator.requests[0].sampling.grammar == ""


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_the_generation_is_held_to_the_schemas_of_the_tools(choice):
    generator = writes(WRITTEN["hermes"])
    async with serving(generator, HERMES) as client:
        await ask(client, CHAT, **WISH, tool_choice=choice, parallel_tool_calls=False)
    sampling = generator.requests[0].sampling
    assert [json.loads(schema)["type"] for _, schema in sampling.schemas] == ["object", "object"]
    assert "root ::=" in sampling.grammar
    assert all(name in sampling.grammar for name, _ in sampling.schemas)


async def test_calls_and_results_in_the_history_are_rendered():
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "7°"},
    ]
    async with serving(writes(""), HERMES) as client:
        status, rendered = await ask(client, "/apply-template", messages=messages)
        broken = {**call, "function": {"name": "weather", "arguments": "{"}}
        refused, error = await ask(
            client, "/apply-template", messages=[*HI, {"role": "assistant", "tool_calls": [broken]}, *HI]
        )
    assert (status, refused) == (200, 400)
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in rendered["prompt"]
    assert "<tool_response>\n7°\n</tool_response>" in rendered["prompt"]
    assert "Failed to parse tool call arguments as JSON" in error["error"]["message"]


@pytest.mark.parametrize(
    ("body", "closed"),
    [
        ({}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, True),
        ({"reasoning_effort": "none"}, True),
        ({"reasoning_effort": "high"}, False),
    ],
)
async def test_thinking_can_be_switched_off(body, closed):
    async with serving(writes(""), THINKING) as client:
        _, rendered = await ask(client, "/apply-template", messages=HI, **body)
    assert rendered["prompt"].endswith("<think>\n\n</think>\n\n") is closed


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"tools": [{"type": "retrieval"}]}, 400, "type"),
        ({"tools": [{"type": "function", "function": {}}]}, 400, "name"),
        ({"tools": "all"}, 400, "array"),
        ({"tool_choice": "sometimes"}, 400, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, 501, "tool_choice"),
        ({"grammar": 'root ::= "x"'}, 400, "grammar"),
        ({"response_format": {"type": "json_object"}}, 501, "response_format"),
        ({"reasoning_format": "deepseek-legacy"}, 501, "reasoning_format"),
        ({"reasoning_format": "loud"}, 400, "reasoning format"),
        ({"messages": [*HI, {"role": "assistant", "tool_calls": [{}]}]}, 400, "tool_calls"),
        ({"logprobs": True, "stream": True}, 400, "logprobs"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words(body, status, says):
    async with serving(writes("x"), HERMES) as client:
        found, error = await ask(client, CHAT, **{**WISH, **body})
    assert (found, says in error["error"]["message"]) == (status, True), error


async def test_tools_that_the_template_does_not_show_are_not_dropped():
    for template in (OPEN_TAG, HERMES.replace("<tool_call>", "<call>"), HERMES.replace("tool | tojson", "''")):
        async with serving(writes("x"), template) as client:
            status, error = await ask(client, CHAT, **WISH)
        assert (status, error["error"]["type"]) == (501, "not_supported_error")


async def test_properties_say_what_the_template_can_show():
    async with serving(writes(""), HERMES) as client:
        caps = (await (await client.get("/props")).json())["chat_template_caps"]
    assert (caps["supports_tools"], caps["supports_tool_calls"], caps["supports_parallel_tool_calls"]) == (True,) * 3
    assert (caps["supports_typed_content"], caps["supports_reasoning_effort"]) == (False, False)


async def test_the_official_client_puts_a_stream_together():
    text = "<think>\nHm.\n</think>\n\n" + WRITTEN["hermes"]
    async with serving(writes(text), THINKING) as client:
        base = str(client.make_url("/v1"))
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as official:
            wish = {"model": "any", **WISH}
            whole = await official.chat.completions.create(**wish)
            async with official.chat.completions.stream(**wish) as stream:
                streamed = await stream.get_final_completion()
    for found in (whole, streamed):
        (choice,) = found.choices
        assert (choice.message.content, choice.finish_reason) == ("So.", "tool_calls")
        assert [call.function.name for call in choice.message.tool_calls] == ["weather", "time"]
        assert json.loads(choice.message.tool_calls[0].function.arguments) == PARIS
    assert whole.choices[0].message.reasoning_content == "Hm.\n"
