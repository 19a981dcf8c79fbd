"""What the runner refuses, and how: in stock's form, and the process lives."""

from __future__ import annotations

import json

import aiohttp
import pytest

from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner import server as server_module
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.hooks.errors import EngineError, RequestError
from tests.daemon.runner.scripted import BODY, WORDS, ScriptedGenerator, ask, serving
from tests.fakes.misbehaviour import RAISED


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"{bad", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"prompt": "\xff"}', "not valid UTF-8"),
        (b'{"prompt": "caf\xe9"}', "position 15"),
        (b'{"prompt": "1", "n_predict": ' + b"9" * 400 + b"}", "'n_predict'"),
        (b'{"prompt": "1", "n_predict": ' + b"9" * 5000 + b"}", "more than 4300 digits"),
        (b'{"prompt": "1", "logit_bias": {"--5": 1}}', "'logit_bias'"),
        (b'{"prompt": "1", "temperature": NaN}', "not valid JSON"),
        (b'{"prompt": "1", "temperature": 1e999}', "'temperature'"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"{}", '"prompt" is missing'),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_and_the_server_lives(body, says):
    async with serving(ScriptedGenerator()) as client:
        response = await client.post("/completion", data=body)
        error = (await response.json())["error"]
        status, _ = await ask(client, **BODY)

    assert (response.status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert says in error["message"]
    assert status == 200


async def test_a_body_beyond_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_BODY", 1000)
    async with serving(ScriptedGenerator()) as client:
        status, body = await ask(client, prompt="1 " * 2000)

    assert (status, body["error"]["type"]) == (413, "invalid_request_error")


async def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers():
    generator = ScriptedGenerator(engine=FakeEngine(n_ctx=4))
    async with serving(generator) as client:
        for stream in (False, True):
            status, body = await ask(client, prompt=[2, 3, 4, 5], stream=stream)
            error = body["error"]
            assert (status, error["type"]) == (400, "exceed_context_size_error")
            assert (error["n_prompt_tokens"], error["n_ctx"]) == (4, 4)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("grammar: unbalanced; close it"), 400, "invalid_request_error"),
        (EngineError("out of memory; use a smaller context"), 500, "server_error"),
        (ValueError("surprise"), 500, "server_error"),
    ],
)
async def test_an_error_before_the_first_token_has_its_status_even_in_a_stream(error, status, kind):
    async with serving(ScriptedGenerator(error=error)) as client:
        for stream in (False, True):
            found, body = await ask(client, **BODY, stream=stream)
            assert (found, body["error"]["code"], body["error"]["type"]) == (status, status, kind)
            assert str(error) in body["error"]["message"]


@pytest.mark.parametrize("error", RAISED)
async def test_whatever_a_generation_raises_is_an_answer_and_the_server_lives(error):
    generator = ScriptedGenerator(error=error)
    async with serving(generator) as client:
        for stream in (False, True):
            status, body = await ask(client, **BODY, stream=stream)
            assert (status, body["error"]["type"]) == (500, "server_error")
        generator.error = None
        assert (await ask(client, **BODY))[0] == 200


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("long", [False, True])
async def test_whatever_the_tokenizer_raises_is_an_answer_and_the_server_lives(error, long):
    def broken(*arguments, **options):
        raise error

    generator = ScriptedGenerator()
    async with serving(generator) as client:
        encode, generator.engine.tokenizer.encode = generator.engine.tokenizer.encode, broken
        for path, name in (("/tokenize", "content"), ("/completion", "prompt")):
            status, body = await ask(client, path, **{name: "2 3 " * (10_000 if long else 1)})
            assert (status, body["error"]["type"]) == (500, "server_error")
        generator.engine.tokenizer.encode = encode
        assert (await ask(client, **BODY))[0] == 200


async def test_once_the_engines_thread_is_lost_every_endpoint_says_so(monkeypatch):
    def broken(thread, generator, job):
        raise MemoryError

    monkeypatch.setattr(EngineThread, "_begin", broken)
    async with serving(ScriptedGenerator()) as client:
        assert (await client.get("/health")).status == 200
        answers = [await ask(client, **BODY)]
        for path in ("/health", "/v1/health", "/props", "/slots"):
            answer = await client.get(path)
            answers.append((answer.status, await answer.json()))
        answers.append(await ask(client, **BODY))

    for status, body in answers:
        assert (status, body["error"]["code"], body["error"]["type"]) == (500, 500, "server_error")
        assert "the engine's thread has ended (MemoryError" in body["error"]["message"]


async def read_into(got, answer):
    while data := await answer.content.readany():
        got += data


async def test_an_error_in_mid_stream_becomes_its_last_event_and_the_stream_breaks_off():
    """Ollama passes an error event over, and takes the end of a stream for the end of the answer."""
    generator = ScriptedGenerator([WORDS, WORDS], error=EngineError("decode failed; reload"), error_after=1)
    got = bytearray()
    async with serving(generator) as client:
        answer = await client.post("/completion", json={**BODY, "stream": True})
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_into(got, answer)

    *chunks, last = [json.loads(line.removeprefix(b"data: ")) for line in got.split(b"\n\n")[:-1]]
    assert len(chunks) == 3
    assert last == {"error": {"code": 500, "message": "decode failed; reload", "type": "server_error"}}


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embedding", "/infill", "/v1/rerank", "/props", "/v1/responses"])
async def test_what_this_runner_does_not_do_is_said_in_stocks_form(path):
    async with serving(ScriptedGenerator()) as client:
        status, body = await ask(client, path, input="x")

    assert (status, body["error"]["code"], body["error"]["type"]) == (501, 501, "not_supported_error")


async def test_unknown_paths_and_methods_get_stocks_404():
    async with serving(ScriptedGenerator()) as client:
        answers = [await client.get("/nowhere"), await client.get("/completion"), await client.post("/health")]
        bodies = [await answer.json() for answer in answers]

    expected = {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}
    assert [answer.status for answer in answers] == [404, 404, 404]
    assert bodies == [expected] * 3
