"""The other paths: tokens, templates, OpenAI's forms, metrics and properties."""

from __future__ import annotations

import asyncio

import pytest

from pilotfish.daemon.chat.rendering import RENDERER
from tests.daemon.runner.scripted import BODY, ScriptedGenerator, ask, events, serving


async def test_tokenize_and_detokenize():
    async with serving(ScriptedGenerator()) as client:
        assert await ask(client, "/tokenize", content="3 4") == (200, {"tokens": [3, 4]})
        assert await ask(client, "/tokenize", content=["3", 9, "4"]) == (200, {"tokens": [3, 9, 4]})
        assert await ask(client, "/tokenize") == (200, {"tokens": []})
        assert await ask(client, "/tokenize", content="3", with_pieces=True) == (
            200,
            {"tokens": [{"id": 3, "piece": "3 "}]},
        )
        assert await ask(client, "/detokenize", tokens=[3, 4]) == (200, {"content": "3 4 "})
        assert await ask(client, "/detokenize") == (200, {"content": ""})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": 5}),
        ("/tokenize", {"content": [1.5]}),
        ("/tokenize", {"content": [999]}),
        ("/tokenize", {"content": "3", "add_special": "yes"}),
        ("/detokenize", {"tokens": "x"}),
        ("/detokenize", {"tokens": [999]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": [True]}),
    ],
)
async def test_bad_tokens_are_refused(path, body):
    async with serving(ScriptedGenerator()) as client:
        status, answer = await ask(client, path, **body)

    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


async def test_apply_template():
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    async with serving(ScriptedGenerator()) as client:
        answer = await ask(client, "/apply-template", messages=messages)

    assert answer == (200, {"prompt": "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"})


NUMBERS = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
CHAT = {"messages": [{"role": "user", "content": "2 3 4"}], "max_tokens": 3}


async def test_a_chat_answer():
    async with serving(ScriptedGenerator(), NUMBERS) as client:
        status, body = await ask(client, "/v1/chat/completions", **CHAT)

    choice = body["choices"][0]
    assert status == 200
    assert body["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": "five six seven"}
    assert choice["finish_reason"] == "length"
    assert body["usage"] == {
        "completion_tokens": 3,
        "prompt_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert body["timings"]["draft_n_accepted"] == 2


async def test_a_streamed_chat_answer():
    async with serving(ScriptedGenerator(), NUMBERS) as client:
        first, *chunks, ending, done = await events(client, "/v1/chat/completions", **CHAT)

    assert done == "[DONE]"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"content": "five "},
        {"content": "six "},
        {"content": "seven"},
    ]
    assert (ending["choices"][0]["finish_reason"], ending["choices"][0]["delta"]) == ("length", {})
    assert ending["timings"]["predicted_n"] == 3
    assert len({chunk["id"] for chunk in (first, *chunks, ending)}) == 1


async def test_usage_is_streamed_on_request():
    async with serving(ScriptedGenerator(), NUMBERS) as client:
        *_, ending, usage, _ = await events(
            client, "/v1/chat/completions", **CHAT, stream_options={"include_usage": True}
        )

    assert ending["choices"][0]["finish_reason"] == "length"
    assert "timings" not in ending
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 3)


async def test_a_last_assistant_message_is_continued():
    generator = ScriptedGenerator()
    messages = [{"role": "user", "content": "2"}, {"role": "assistant", "content": "3 4"}]
    async with serving(generator, NUMBERS) as client:
        _, body = await ask(client, "/v1/chat/completions", messages=messages)

    assert generator.requests[0].prompt == (2, 3, 4)
    assert body["choices"][0]["message"]["content"] == "3 4five six seven"


async def test_a_text_completion_streams_as_openai_does():
    async with serving(ScriptedGenerator()) as client:
        *chunks, ending, done = await events(client, "/v1/completions", prompt="2 3", max_tokens=3)

    assert done == "[DONE]"
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["five ", "six ", "seven"]
    assert (ending["object"], ending["choices"][0]["finish_reason"]) == ("text_completion", "length")
    assert ending["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    ("path", "extra", "field"),
    [
        ("/v1/chat/completions", {"tools": [{"type": "function"}]}, "tools"),
        ("/v1/chat/completions", {"functions": [{"name": "f"}]}, "functions"),
        ("/v1/chat/completions", {"tool_choice": "required"}, "tool_choice"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages"),
        ("/apply-template", {"messages": [{"role": "tool", "content": "1"}]}, "messages"),
        ("/apply-template", {"messages": [{"role": "function", "name": "f", "content": "1"}]}, "messages"),
        ("/v1/completions", {"prompt": "1", "echo": True}, "echo"),
        ("/v1/completions", {"prompt": "1", "suffix": "x"}, "suffix"),
        ("/v1/completions", {"prompt": "1", "best_of": 3}, "best_of"),
        ("/completion", {"prompt": {"prompt_string": "1", "multimodal_data": ["aGk="]}}, "Multimodal"),
    ],
)
async def test_what_the_model_cannot_take_is_refused_by_name(path, extra, field):
    generator = ScriptedGenerator()
    async with serving(generator) as client:
        status, body = await ask(client, path, **{**CHAT, **extra})
        after, _ = await ask(client, **BODY)

    assert (status, body["error"]["type"]) == (501, "not_supported_error")
    assert field in body["error"]["message"]
    assert after == 200


async def test_a_template_that_is_none_leaves_prompts_usable():
    async with serving(ScriptedGenerator(), "first\n{% nosuch %}") as client:
        prompted, _ = await ask(client, **BODY)
        refused, body = await ask(client, "/v1/chat/completions", **CHAT)

    assert (prompted, refused) == (200, 501)
    assert "line 2: Encountered unknown tag 'nosuch'" in body["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
async def test_a_template_that_loops_keeps_nobody_else_waiting(path, monkeypatch):
    monkeypatch.setattr(RENDERER, "_seconds", 0.5)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    async with serving(ScriptedGenerator(), loop) as client:
        looping = asyncio.create_task(ask(client, path, **CHAT))
        answered = 0
        while not looping.done():  # a rendering on the event loop lets one or two through: before it, and after it
            answered += (await client.get("/health")).status == 200
        status, body = await looping
        after, _ = await ask(client, **BODY)

    assert (status, after) == (400, 200)
    assert answered > 5
    assert "it took more than" in body["error"]["message"]


async def test_a_model_that_reasons_is_only_served_raw():
    template = NUMBERS + "{# <think> #}"
    async with serving(ScriptedGenerator(), template) as client:
        refused, _ = await ask(client, "/v1/chat/completions", **CHAT)
        served, _ = await ask(client, "/v1/chat/completions", **CHAT, reasoning_format="none")

    assert (refused, served) == (501, 200)


async def test_metrics_count_what_was_answered():
    async with serving(ScriptedGenerator()) as client:
        await ask(client, **BODY)
        await ask(client, **BODY)
        response = await client.get("/metrics")
        text = await response.text()

    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in (
        "llamacpp:prompt_tokens_total 4.0",
        "llamacpp:prompt_tokens_cached_total 2.0",
        "llamacpp:tokens_predicted_total 6.0",
        "llamacpp:spec_decode_num_accepted_tokens_total 4.0",
        "pilotfish_drafted_tokens_total 6.0",
        "pilotfish_rounds_total 2.0",
        'pilotfish_answers_total{parity="lane"} 2.0',
    ):
        assert line in text.splitlines()


async def test_props_and_models():
    async with serving(ScriptedGenerator()) as client:
        props = await (await client.get("/props")).json()
        models = await (await client.get("/v1/models")).json()

    assert props["default_generation_settings"]["n_ctx"] == 512
    assert props["pilotfish"]["lane"] == "fake"
    assert [model["id"] for model in models["data"]] == ["fake"]
