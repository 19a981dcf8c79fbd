"""The OpenAI side, as Ollama's compatibility layer answers."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def front(shared_front):
    return shared_front


CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "echo:one two"}]}
TEXT = {"model": "tiny", "prompt": "echo:one two"}


async def events(front, path, body):
    """The objects of a stream of server-sent events, which must end with [DONE]."""
    async with front.post(path, {**body, "stream": True}) as response:
        assert response.content_type == "text/event-stream"
        *objects, done, rest = (await response.text()).split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(text.removeprefix("data: ")) for text in objects]


async def test_a_chat_completion(front):
    status, answer = await front.ask("/v1/chat/completions", CHAT)
    assert status == 200
    assert answer["id"].startswith("chatcmpl-")
    assert (answer["object"], answer["system_fingerprint"], answer["model"]) == ("chat.completion", "fp_ollama", "tiny")
    (choice,) = answer["choices"]
    message = {"role": "assistant", "content": "one two"}
    assert choice == {"index": 0, "message": message, "finish_reason": "stop"}
    prompt = len("<user>echo:one two\n<assistant>")
    assert answer["usage"] == {"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2}


async def test_a_streamed_chat_opens_with_a_role_and_ends_with_a_reason(front):
    first, *middle, last = await events(front, "/v1/chat/completions", CHAT)
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "one "}
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [{"content": "two"}]
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert len({(chunk["id"], chunk["created"]) for chunk in (first, *middle, last)}) == 1


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)])
async def test_usage_comes_last_when_asked_for(front, path, body):
    *_, last = await events(front, path, {**body, "stream_options": {"include_usage": True}})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2


async def test_a_text_completion(front):
    status, answer = await front.ask("/v1/completions", {**TEXT, "max_tokens": 1})
    assert (status, answer["object"]) == (200, "text_completion")
    assert answer["choices"] == [{"index": 0, "text": "one ", "finish_reason": "length"}]
    chunks = await events(front, "/v1/completions", TEXT)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "one two"


async def test_openais_defaults_and_names_become_options(front):
    await front.ask("/v1/chat/completions", CHAT)
    body = {**CHAT, "max_completion_tokens": 5, "seed": 3, "stop": "x", "temperature": 0, "presence_penalty": 0.5}
    await front.ask("/v1/chat/completions", {**body, "speculate": False})
    first, second = (entry["body"] for entry in front.journal_of("completion"))
    assert (first["temperature"], first["top_p"], first["n_predict"]) == (1.0, 1.0, 10 * 4096)
    shown = ("temperature", "n_predict", "seed", "stop", "presence_penalty", "speculate")
    assert [second[name] for name in shown] == [0.0, 5, 3, ["x"], 0.5, False]


async def test_response_formats_become_schemas(front):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for form in ({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, {"type": "json_object"}):
        await front.ask("/v1/chat/completions", {**CHAT, "response_format": form})
    schemas = [entry["body"]["json_schema"] for entry in front.journal_of("completion")]
    assert schemas == [schema, {"type": "object"}]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": None}, None),
        ({"type": "json_object", "schema": SCHEMA}, {"type": "object"}),  # OpenAI has no schema there
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}, SCHEMA),
        ({"type": "JSON_SCHEMA ", "json_schema": {"schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "schema": SCHEMA}, None),
        ({"type": "json_schema", "json_schema": None}, None),
        ({"type": "json_schema", "json_schema": {"schema": None}}, None),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, {}),  # the runner's "any object"
        ({"type": "yaml"}, None),
    ],
)
async def test_a_response_format_is_read_as_ollama_reads_it(front, form, schema):
    assert (await front.ask("/v1/chat/completions", {**CHAT, "response_format": form}))[0] == 200
    assert front.journal_of("completion")[0]["body"].get("json_schema") == schema


@pytest.mark.parametrize("form", ["json", {"type": 5}, {"type": "json_schema", "json_schema": {"schema": [1]}}])
async def test_a_response_format_of_another_shape_is_refused(front, form):
    status, answer = await front.ask("/v1/chat/completions", {**CHAT, "response_format": form})
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


async def test_an_assistant_without_content_must_have_called_tools(front):
    turn = {"role": "assistant", "content": None}
    last = {"role": "user", "content": "echo:ok"}
    body = {"model": "tiny", "messages": [{**turn, "tool_calls": []}, last]}
    assert (await front.ask("/v1/chat/completions", body))[0] == 200
    status, answer = await front.ask("/v1/chat/completions", {**body, "messages": [turn, last]})
    said = "messages[0].content must be a string or an array of parts, got null"
    assert (status, answer["error"]["message"]) == (400, said)


async def test_logprobs(front):
    _, answer = await front.ask("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 1})
    first = answer["choices"][0]["logprobs"]["content"][0]
    assert (first["token"], first["logprob"], first["top_logprobs"]) == (
        "one ",
        -0.5,
        [{"token": "t0", "logprob": -1.0}],
    )
    _, answer = await front.ask("/v1/completions", {**TEXT, "logprobs": 1})
    assert answer["choices"][0]["logprobs"]["tokens"] == ["one ", "two"]


async def test_content_parts_are_messages_of_their_own(front):
    parts = [{"type": "text", "text": "first"}, {"type": "text", "text": "echo:two"}]
    await front.ask("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": parts}]})
    prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"]).decode()
    assert prompt == "<user>first\n<user>echo:two\n<assistant>"


async def test_a_developer_is_passed_on_as_one(front):
    messages = [{"role": "developer", "content": "Rhyme."}, *CHAT["messages"]]
    await front.ask("/v1/chat/completions", {"model": "other:v2", "messages": messages})
    prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"]).decode()
    assert prompt == "<developer>Rhyme.\n<user>echo:one two\n<assistant>"


@pytest.mark.parametrize(("path", "field"), [("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")])
async def test_a_prompt_longer_than_the_context_is_shortened(front, path, field):
    text = "x" * 5000  # tokens, and the context's default is 4096
    asked = [{"role": "user", "content": text}] if field == "messages" else text
    status, answer = await front.ask(path, {"model": "tiny", field: asked})
    assert (status, answer["usage"]["prompt_tokens"]) == (200, 4096 - (4096 - 4) // 2)


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "message"),
    [
        ("/v1/chat/completions", {"model": "tiny"}, 400, "invalid_request_error", "[] is too short - 'messages'"),
        ("/v1/chat/completions", {**CHAT, "model": "nope"}, 404, "not_found_error", "model 'nope' not found"),
        ("/v1/completions", {**TEXT, "prompt": ["a", "b"]}, 400, "invalid_request_error", "prompt must be one string"),
        ("/v1/completions", {**TEXT, "n": 2}, 400, "invalid_request_error", "n must be 1"),
        ("/v1/completions", {**TEXT, "stop": [1]}, 400, "invalid_request_error", "stop must be a string"),
        ("/v1/chat/completions", {**CHAT, "reasoning_effort": "low"}, 400, "invalid_request_error", "support thinking"),
        ("/v1/chat/completions", {**CHAT, "reasoning_effort": "odd"}, 400, "invalid_request_error", '"odd"'),
        *(
            (
                "/v1/chat/completions",
                {"model": "tiny", "messages": [*CHAT["messages"], turn]},
                400,
                "invalid_request_error",
                "does not support tools",
            )
            for turn in (
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "assistant", "content": "so", "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "tool", "tool_call_id": "1", "content": "5"},
                {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "5"}]},
                {"role": "function", "name": "f", "content": "5"},
            )
        ),
        ("/v1/chat/completions", {**CHAT, "tools": [{}]}, 400, "invalid_request_error", "does not support tools"),
        (
            "/v1/chat/completions",
            {"model": "tiny", "messages": [{"role": "user", "content": [IMAGE]}]},
            400,
            "invalid_request_error",
            "does not support vision",
        ),
        ("/v1/embeddings", {"model": "tiny", "input": "x"}, 501, "api_error", "embeddings are not served here"),
    ],
)
async def test_errors_have_openais_shape(front, path, body, status, kind, message):
    got, answer = await front.ask(path, body)
    assert (got, answer["error"]["type"], answer["error"]["code"]) == (status, kind, None)
    assert message in answer["error"]["message"]


async def test_an_error_in_mid_stream_is_its_last_event(front):
    body = {"model": "tiny", "prompt": "fail echo:abcdefgh", "stream": True}
    async with front.post("/v1/completions", body) as response:
        *_, last, rest = (await response.text()).split("\n\n")
    assert rest == ""
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "a forward pass failed"
