"""The official Python clients of Ollama and OpenAI, unchanged, against the front."""

from __future__ import annotations

import contextlib

import ollama
import openai
import pytest
from pydantic import BaseModel

from tests.waiting import until

MESSAGES = [{"role": "user", "content": "echo:one two three"}]


@pytest.fixture
def client(front):
    return ollama.AsyncClient(host=front.url)


@pytest.fixture
async def openai_client(front):
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_ollama_generate_and_chat(client):
    answer = await client.generate("tiny", "echo:one two three")
    assert (answer.response, answer.done_reason, answer.eval_count) == ("one two three", "stop", 4)
    assert answer.context
    answer = await client.chat("tiny", MESSAGES, options={"seed": 1, "temperature": 0, "stop": ["\n"]}, keep_alive="5m")
    assert answer.message.content == "one two three"


async def test_ollama_streams(client):
    parts = [part async for part in await client.chat("tiny", MESSAGES, stream=True)]
    assert "".join(part.message.content for part in parts) == "one two three"
    assert [part.done for part in parts] == [False] * 4 + [True]
    parts = [part async for part in await client.generate("tiny", "echo:a b c", stream=True, logprobs=True)]
    assert parts[0].logprobs[0].token == "a b "


async def test_ollama_format_with_a_schema(client, front):
    class Pet(BaseModel):
        name: str

    await client.chat("tiny", MESSAGES, format=Pet.model_json_schema())
    assert front.journal_of("completion")[0]["body"]["json_schema"]["required"] == ["name"]


async def test_ollama_list_show_ps(client):
    assert {model.model for model in (await client.list()).models} >= {"tiny:latest", "other:v2"}
    shown = await client.show("tiny")
    assert shown.details.family == "llama"
    assert shown.modelinfo["llama.context_length"] == 4096
    await client.generate("tiny", "")
    (loaded,) = (await client.ps()).models
    assert loaded.model == "tiny:latest"


async def test_ollama_errors(client):
    with pytest.raises(ollama.ResponseError, match="model 'nope' not found") as caught:
        await client.generate("nope", "x")
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="ollama pull"):
        await client.pull("tiny")
    with pytest.raises(ollama.ResponseError, match="embeddings"):
        await client.embed("tiny", "x")
    with pytest.raises(ollama.ResponseError, match="a forward pass failed"):
        async for _ in await client.generate("tiny", "fail echo:abcdefgh", stream=True):
            pass


async def test_ollama_stops_in_mid_stream(client, front):
    async with contextlib.aclosing(await client.generate("tiny", "endless", stream=True)) as parts:
        assert (await anext(parts)).response == "on "
    await until(lambda: front.journal_of("cancelled"))


async def test_openai_chat(openai_client):
    answer = await openai_client.chat.completions.create(
        model="tiny", messages=MESSAGES, seed=1, stop=["x"], logprobs=True
    )
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("one two three", "stop")
    assert choice.logprobs.content[0].token == "one "
    stream = await openai_client.chat.completions.create(
        model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "one two three"
    assert chunks[-1].usage.completion_tokens == 4


async def test_openai_completions_models_and_structured_output(openai_client, front):
    class Pet(BaseModel):
        name: str

    answer = await openai_client.completions.create(model="tiny", prompt="echo:one", logprobs=2)
    assert answer.choices[0].text == "one"
    assert answer.choices[0].logprobs.tokens == ["one"]
    assert "tiny:latest" in {model.id async for model in await openai_client.models.list()}
    assert (await openai_client.models.retrieve("tiny")).id == "tiny"
    messages = [{"role": "user", "content": 'echo:{"name": "Rex"}'}]
    parsed = await openai_client.chat.completions.parse(model="tiny", messages=messages, response_format=Pet)
    assert parsed.choices[0].message.parsed == Pet(name="Rex")
    assert front.journal_of("completion")[-1]["body"]["json_schema"]["required"] == ["name"]


async def test_openai_errors(openai_client):
    with pytest.raises(openai.NotFoundError, match="model 'nope' not found"):
        await openai_client.chat.completions.create(model="nope", messages=MESSAGES)
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="does not support tools"):
        await openai_client.chat.completions.create(model="tiny", messages=MESSAGES, tools=[tool])
