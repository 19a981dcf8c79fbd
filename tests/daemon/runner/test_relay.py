"""What the runner does not serve goes to the stock server beside it, and the answer comes back as it is."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilotfish.daemon.http.connection import Limits
from pilotfish.daemon.http.listeners import listeners
from pilotfish.daemon.http.serving import serving
from pilotfish.daemon.runner.relay import relay
from pilotfish.daemon.runner.server import Server
from tests.daemon.runner.scripted import ScriptedGenerator, card
from tests.daemon.runner.settings import SETTINGS
from tests.daemon.runner.test_sidecar import beside, server
from tests.fakes.peers import not_reading
from tests.server_processes import SHIMMED_RUNNER, running
from tests.waiting import until

__all__ = ["beside", "server"]  # fixtures

PLAIN = "{{ messages[0].content }}"  # the fake engine knows numbers only
HI = [{"role": "user", "content": "2 3 4"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALL = {"type": "function", "id": "1", "function": {"name": "add", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "5"}
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]}]


def relaying(sidecar):
    """A server that relays everything."""

    async def act(http):
        return await relay(http, sidecar)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", act)
    return app


@pytest.fixture
async def client(beside):
    """A client of a server that relays everything, as the runner serves it."""
    async with TestClient(TestServer(relaying(beside()))) as client:
        yield client


@asynccontextmanager
async def runner_beside(sidecar, generator=None, template=PLAIN):
    """A client of a runner with a scripted engine and `sidecar`."""
    generator = generator or ScriptedGenerator()
    runner = Server(lambda: (generator, card(generator.engine, template)), sidecar=sidecar)
    async with TestClient(TestServer(runner.app)) as client:
        await runner.start()
        yield client
        runner.cancel()
    assert runner.join(60)


async def test_method_path_headers_and_body_arrive_as_they_were_sent(client):
    body = b'{"odd" :  [1,2.50, "\\u00e9"]}'
    headers = {"X-Own": "1", "Authorization": "Bearer x", "User-Agent": "me", "Content-Type": "application/json"}
    answer = await client.put("/v1/some%2Fthing?a=b%20c&a", data=body, headers=headers, skip_auto_headers=["Accept"])
    seen = await answer.json()

    assert seen["request"] == ["PUT", "/v1/some%2Fthing?a=b%20c&a", body.decode()]
    arrived = dict(seen["headers"])
    assert {name: arrived[name] for name in headers} == headers
    assert "Accept" not in arrived
    assert arrived["Host"] == f"127.0.0.1:{client.port}"
    assert arrived["Content-Length"] == str(len(body))


async def test_status_headers_and_body_come_back_as_they_were_sent(beside):
    sidecar = beside("--status", "418")
    async with runner_beside(sidecar) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": HI, "tools": [TOOL]})
        body = await answer.read()

    assert answer.status == 418
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers.getall("X-Twice") == ["a", "b"]
    assert answer.headers["Content-Length"] == str(len(body))


async def test_a_stream_comes_as_it_is_made(client, tmp_path):
    async with client.post("/stream", data=str(tmp_path)) as answer:
        first = await answer.content.readany()
        (tmp_path / "go").touch()
        rest = await answer.content.read()

    assert answer.headers["Content-Type"] == "text/event-stream"
    assert (first, rest) == (b"data: 1\n\n", b"data: 2\n\n")


async def test_a_client_that_leaves_takes_the_upstream_connection_along(client, tmp_path):
    async with client.post("/forever", data=str(tmp_path)) as answer:
        await answer.content.readany()
        answer.close()

    await until((tmp_path / "gone").exists)


async def test_a_client_that_stops_reading_does_too(beside, tmp_path):
    listening = await listeners("127.0.0.1", 0)
    async with serving(relaying(beside()), listening, Limits(stall=0.2)):
        with not_reading(listening[0].getsockname()[1], "/flood", str(tmp_path).encode()):
            await until((tmp_path / "gone").exists)


async def test_many_at_once_are_all_answered(client):
    answers = await asyncio.gather(*(client.post("/x", data=str(index)) for index in range(20)))
    assert [(await answer.json())["request"][2] for answer in answers] == [str(index) for index in range(20)]


async def test_a_server_that_dies_is_an_error_with_its_last_words_and_the_next_request_has_another(beside):
    async with runner_beside(beside()) as client:
        died = await client.post("/v1/messages", json="die")
        error = (await died.json())["error"]
        again = await client.post("/v1/messages", json={})

    assert (died.status, error["type"]) == (500, "server_error")
    assert "GGML_ASSERT(too much) failed" in error["message"]
    assert again.status == 200


async def test_an_answer_that_breaks_off_breaks_off_for_the_client(client):
    async with client.post("/break") as answer:
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_server_that_cannot_start_is_an_error_in_llama_servers_form(beside):
    async with runner_beside(beside("--fail")) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": HI, "tools": [TOOL]})
        error = (await answer.json())["error"]
        plain = await client.post("/v1/chat/completions", json={"messages": HI, "max_tokens": 3})

    assert (answer.status, error["code"], error["type"]) == (500, 500, "server_error")
    assert "error: the model is damaged" in error["message"]
    assert plain.status == 200, "the runner lives"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HI, "tools": [TOOL]}),
        ("/v1/chat/completions", {"messages": HI, "tool_choice": "required"}),
        ("/v1/chat/completions", {"messages": HI, "response_format": {"type": "json_object"}}),
        ("/v1/chat/completions", {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {}}}),
        ("/v1/chat/completions", {"messages": HI, "json_schema": {}}),
        ("/v1/chat/completions", {"messages": IMAGE}),
        ("/v1/chat/completions", {"messages": [*HI, {"role": "assistant", "tool_calls": [CALL]}, RESULT]}),
        ("/v1/chat/completions", {"messages": [*HI, RESULT]}),
        ("/apply-template", {"messages": HI, "tools": [TOOL]}),
        ("/completion", {"prompt": {"prompt_string": "<img>", "multimodal_data": ["aGk="]}}),
        ("/completion", {"prompt": "2 3", "dry_multiplier": 0.5}),
        ("/infill", {"input_prefix": "a"}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"messages": HI}),
    ],
)
async def test_what_the_runner_does_not_do_stock_does(beside, path, body):
    generator = ScriptedGenerator()
    async with runner_beside(beside(), generator) as client:
        raw = json.dumps(body, indent=3)
        answer = await client.post(path, data=raw)
        seen = await answer.json()

    assert seen["request"] == ["POST", path, raw]
    assert generator.requests == []


@pytest.mark.parametrize("mark", ["<think>", "[THINK]", "<|channel|>analysis", "message.reasoning_content"])
async def test_answers_that_may_hold_reasoning_are_taken_apart_by_stock(beside, mark):
    template = PLAIN + "{# " + mark + " #}"
    async with runner_beside(beside(), template=template) as client:
        chat = await (await client.post("/v1/chat/completions", json={"messages": HI})).json()
        text = await (await client.post("/completion", json={"prompt": "2 3", "n_predict": 3})).json()

    assert "request" in chat
    assert "request" not in text


async def test_a_template_that_only_stock_may_understand_is_stocks(beside):
    async with runner_beside(beside(), template="{% nosuch %}") as client:
        chat = await (await client.post("/v1/chat/completions", json={"messages": HI})).json()
        text = await (await client.post("/completion", json={"prompt": "2 3", "n_predict": 3})).json()

    assert "request" in chat
    assert "request" not in text


async def test_without_need_no_stock_server_is_started(beside):
    sidecar = beside(program="/no/such/llama-server")
    async with runner_beside(sidecar) as client:
        chat = await client.post("/v1/chat/completions", json={"messages": HI, "max_tokens": 3, "tools": []})
        text = {"messages": HI, "max_tokens": 3, "response_format": {"type": "text"}, "tool_choice": "none"}
        formatless = await client.post("/v1/chat/completions", json=text)
        malformed = await client.post("/v1/chat/completions", json={"tools": [TOOL], "messages": HI, "stop": [5]})
        refusals = [await client.post(path, json={}) for path in ("/v1/embeddings", "/v1/rerank", "/props")]

    assert [chat.status, formatless.status] == [200, 200]
    assert malformed.status == 500, "tools are stock's, whatever else is wrong"
    assert [answer.status for answer in refusals] == [501, 501, 501]


async def test_without_a_stock_server_the_refusal_is_ours():
    async with runner_beside(None) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": HI, "tools": [TOOL]})
        error = (await answer.json())["error"]
        schema = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
        body = {"messages": HI, "response_format": schema, "max_tokens": 3}
        structured = await client.post("/v1/chat/completions", json=body)

    assert (answer.status, error["type"]) == (501, "not_supported_error")
    assert "tools" in error["message"]
    assert structured.status == 200


async def test_a_runner_with_a_request_beside_it_is_busy(beside, tmp_path):
    sidecar = beside()
    generator = ScriptedGenerator()
    runner = Server(lambda: (generator, card(generator.engine)), sidecar=sidecar)
    assert not runner.busy
    async with sidecar.running():
        assert runner.busy
    assert not runner.busy


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.stock
@pytest.mark.model
@pytest.mark.timeout(300)
def test_a_real_stock_server_beside_a_real_runner_answers_as_one_alone(stock, smollm2_path, state, tmp_path):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    forced = {"messages": ask, "tools": [WEATHER], "tool_choice": "required", "temperature": 0, "max_tokens": 64}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    shaped = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    bodies = [forced, {"messages": ask, "response_format": shaped, "temperature": 0, "max_tokens": 24}]
    environment = {**state, "PILOTFISH_STOCK": stock.process.args[0]}
    with running(SHIMMED_RUNNER, smollm2_path, tmp_path / "log", *SETTINGS, env=environment) as runner:
        answers = [[server.post("/v1/chat/completions", **body) for server in (runner, stock)] for body in bodies]
        request = json.dumps({**forced, "stream": True, "max_tokens": 1000, "tool_choice": "auto"})
        _leave(runner, request)
        plain = runner.post("/completion", prompt="A", n_predict=2)

    assert plain.json()["pilotfish"]["lane"]
    for ours, theirs in answers:
        assert ours.status_code == theirs.status_code == 200
        assert _said(ours) == _said(theirs)


def _said(answer):
    """The message without the ids of its tool calls, which are random."""
    message = answer.json()["choices"][0]["message"]
    return {**message, "tool_calls": [{**call, "id": ""} for call in message.get("tool_calls", [])]}


def _leave(server, request):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(request)}\r\n\r\n"
        connection.sendall((head + request).encode())
        assert b"200 OK" in connection.recv(4096)
