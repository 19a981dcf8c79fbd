"""llama-server's protocol against a scripted engine: what goes in, what comes out."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilotfish.daemon.generation import Emission, Outcome, Timings
from pilotfish.hooks.errors import BrokenModel, EngineError, RequestError
from pilotfish.hooks.types import TokenLogprob
from pilotfish.ollama_overlay import server as server_module
from pilotfish.ollama_overlay.server import Server
from tests.fakes.engine import FakeEngine
from tests.ollama_overlay.scripted import WORDS, ScriptedGenerator, card, serving

BODY = {"prompt": "2 3 4", "n_predict": 3, "temperature": 0}


async def ask(client, path="/completion", **body):
    response = await client.post(path, json=body)
    return response.status, await response.json()


async def events(client, path="/completion", **body):
    response = await client.post(path, json={**body, "stream": True})
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    lines = (await response.text()).split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [line if (line := text.removeprefix("data: ")) == "[DONE]" else json.loads(line) for text in lines]


async def test_a_streamed_answer_is_one_chunk_per_token_and_a_final_one():
    async with serving(ScriptedGenerator()) as client:
        *chunks, final = await events(client, **BODY)

    assert [(c["content"], c["tokens"], c["tokens_predicted"], c["stop"]) for c in chunks] == [
        ("five ", [5], 1, False),
        ("six ", [6], 2, False),
        ("seven", [7], 3, False),
    ]
    assert (final["stop"], final["content"], final["tokens"], final["stop_type"]) == (True, "", [], "limit")
    assert (final["tokens_evaluated"], final["tokens_predicted"], final["tokens_cached"]) == (3, 3, 5)
    assert final["prompt"] == "2 3 4 "
    timings = final["timings"]
    assert (timings["cache_n"] + timings["prompt_n"], timings["predicted_n"]) == (3, 3)
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (3, 2)
    assert timings["predicted_per_token_ms"] == 10.0
    assert final["pilotfish"] == {
        "parity": "lane",
        "lane": "fake",
        "speculated": True,
        "rounds": 1,
        "drafted": 3,
        "accepted": 2,
        "drafters": [],
        "dropped": {},
    }


async def test_a_whole_answer_says_the_same_as_the_stream():
    async with serving(ScriptedGenerator()) as client:
        status, whole = await ask(client, **BODY, return_tokens=True)
        *chunks, final = await events(client, **BODY)

    assert status == 200
    assert whole["content"] == "".join(chunk["content"] for chunk in chunks)
    assert whole["tokens"] == [token for chunk in chunks for token in chunk["tokens"]]
    assert whole.keys() == final.keys()


async def test_tokens_are_only_listed_in_a_whole_answer_when_asked_for():
    async with serving(ScriptedGenerator()) as client:
        assert (await ask(client, **BODY))[1]["tokens"] == []


async def test_no_drafts_no_draft_counts():
    outcome = Outcome("eos", Timings(prompt_n=3, predicted_n=3))
    async with serving(ScriptedGenerator(outcome=outcome)) as client:
        _, whole = await ask(client, **BODY)

    assert "draft_n" not in whole["timings"]
    assert whole["stop_type"] == "eos"


async def test_drafted_tokens_are_marked_on_request_only():
    async with serving(ScriptedGenerator()) as client:
        *marked, _ = await events(client, **BODY, return_drafted=True)
        *plain, _ = await events(client, **BODY)

    assert [chunk["drafted"] for chunk in marked] == [False, True, True]
    assert all("drafted" not in chunk for chunk in plain)


async def test_text_held_for_a_stop_string_gives_an_empty_chunk_as_in_stock():
    held = [Emission(5, ""), Emission(6, "5 6 ")]
    async with serving(ScriptedGenerator([held])) as client:
        *chunks, _ = await events(client, **BODY, stop=["6 7"])

    assert [(c["content"], c["tokens"]) for c in chunks] == [("", [5]), ("5 6 ", [6])]


async def test_halves_of_a_character_travel_with_the_one_that_completes_it():
    engine = FakeEngine(pieces={5: b"\xf0\x9f", 6: b"\x98\x8a"})
    batches = [[Emission(5, "")], [Emission(6, "😊")], [Emission(5, "")]]
    async with serving(ScriptedGenerator(batches, engine=engine)) as client:
        *chunks, final = await events(client, **BODY)
        _, whole = await ask(client, **BODY, return_tokens=True)

    assert [(c["content"], c["tokens"], c["tokens_predicted"]) for c in chunks] == [("😊", [5, 6], 2)]
    assert final["tokens"] == [5]  # of a character that was cut off; nothing is lost
    assert (whole["content"], whole["tokens"]) == ("😊", [5, 6, 5])


async def test_control_characters_are_escaped_and_other_text_is_utf8():
    async with serving(ScriptedGenerator([[Emission(5, 'a\x07b\n"é😊')]])) as client:
        response = await client.post("/completion", json={**BODY, "stream": True})
        raw = await response.read()

    first = raw.split(b"\n\n")[0]
    assert b'a\\u0007b\\n\\"' in first
    assert "é😊".encode() in first
    assert not any(byte < 0x20 for byte in first)


async def test_log_probabilities_have_stocks_shape():
    logprob = TokenLogprob(5, -0.5, b"5 ", (TokenLogprob(5, -0.5, b"5 "), TokenLogprob(9, float("-inf"), b"\xc3")))
    async with serving(ScriptedGenerator([[Emission(5, "5 ", logprob=logprob)]])) as client:
        chunk, final = await events(client, **BODY, n_probs=2)
        _, whole = await ask(client, **BODY, n_probs=2)

    expected = {
        "id": 5,
        "token": "5 ",
        "bytes": [53, 32],
        "logprob": -0.5,
        "top_logprobs": [
            {"id": 5, "token": "5 ", "bytes": [53, 32], "logprob": -0.5},
            {"id": 9, "token": "", "bytes": [0xC3], "logprob": -3.4028234663852886e38},
        ],
    }
    assert chunk["completion_probabilities"] == [expected]
    assert "completion_probabilities" not in final
    assert whole["completion_probabilities"] == [expected]


async def test_the_stop_strings_own_tokens_have_no_probabilities_in_a_whole_answer():
    emissions = [Emission(t, "", logprob=TokenLogprob(t, -1.0, b"%d " % t)) for t in (5, 6, 7)]
    outcome = Outcome("word", Timings(prompt_n=3, predicted_n=3), stopping_word="6 7")
    async with serving(ScriptedGenerator([emissions], outcome=outcome)) as client:
        _, whole = await ask(client, **BODY, n_probs=1, stop="6 7")

    assert [entry["id"] for entry in whole["completion_probabilities"]] == [5]


async def test_timings_per_token_come_with_every_chunk():
    async with serving(ScriptedGenerator()) as client:
        *chunks, _ = await events(client, **BODY, timings_per_token=True)

    assert [chunk["timings"]["predicted_n"] for chunk in chunks] == [1, 2, 3]
    assert all(chunk["timings"]["prompt_n"] + chunk["timings"]["cache_n"] == 3 for chunk in chunks)


async def test_response_fields_pick_and_unnest():
    async with serving(ScriptedGenerator()) as client:
        _, whole = await ask(client, **BODY, response_fields=["content", "timings/predicted_n", "no/such"])

    assert whole == {"content": "five six seven", "timings/predicted_n": 3}


async def test_the_seed_in_force_is_reported():
    async with serving(ScriptedGenerator()) as client:
        _, fixed = await ask(client, **BODY, seed=42)
        seeds = {(await ask(client, **BODY, seed=-1))[1]["generation_settings"]["seed"] for _ in range(3)}

    assert fixed["generation_settings"]["seed"] == 42
    assert len(seeds) == 3
    assert all(0 <= seed < 2**32 - 1 for seed in seeds)


async def test_several_prompts_give_several_answers():
    async with serving(ScriptedGenerator()) as client:
        _, native = await ask(client, prompt=["2 3", "4"], n_predict=3)
        _, text = await ask(client, "/v1/completions", prompt=["2 3", "4"], max_tokens=3)

    assert [(a["index"], a["tokens_evaluated"]) for a in native] == [(0, 2), (1, 1)]
    assert [choice["index"] for choice in text["choices"]] == [0, 1]


async def test_an_empty_prompt_is_answered_at_once_with_nothing():
    generator = ScriptedGenerator()
    async with serving(generator) as client:
        status, whole = await ask(client, prompt="", n_predict=3)

    assert (status, whole["content"], whole["tokens_predicted"]) == (200, "", 0)
    assert generator.requests == []


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"{bad", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"prompt": "\xff"}', "not valid UTF-8"),
        (b'{"prompt": "\\ud800"}', "not valid UTF-8"),
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


async def test_an_error_in_mid_stream_becomes_its_last_event():
    generator = ScriptedGenerator([WORDS, WORDS], error=EngineError("decode failed; reload"), error_after=1)
    async with serving(generator) as client:
        *chunks, last = await events(client, **BODY)

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


# Loading --------------------------------------------------------------------------------------------------------------


async def test_every_path_answers_503_while_the_model_loads():
    gate = threading.Event()
    generator = ScriptedGenerator()

    def load():
        gate.wait(5)
        return generator, card(generator.engine)

    server = Server(load)
    async with TestClient(TestServer(server.app)) as client:
        loaded = server.start()
        during = [await client.get("/health"), await client.post("/completion", json=BODY), await client.get("/props")]
        bodies = [await answer.json() for answer in during]
        gate.set()
        await loaded
        after = await client.get("/health")
        body_after = await after.json()
        server.cancel()
    server.join(5)

    loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    assert [answer.status for answer in during] == [503, 503, 503]
    assert bodies == [loading] * 3
    assert (after.status, body_after) == (200, {"status": "ok"})


async def test_a_failed_load_is_raised_to_whoever_started_it():
    def load():
        raise BrokenModel("fake.gguf is cut short; pull it again")

    server = Server(load)
    with pytest.raises(BrokenModel, match="pull it again"):
        await server.start()
    assert server.join(5)


# One slot -------------------------------------------------------------------------------------------------------------


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within five seconds")


async def test_requests_are_answered_in_the_order_they_came():
    gate = threading.Semaphore(0)
    generator = ScriptedGenerator(gate=gate)
    async with serving(generator) as client:
        tasks = []
        for i in range(4):
            tasks.append(asyncio.create_task(ask(client, prompt=[2 + i], n_predict=3)))
            await asyncio.sleep(0.02)
        metrics = await (await client.get("/metrics")).text()
        slots = await (await client.get("/slots")).json()
        gate.release(4)
        answers = await asyncio.gather(*tasks)

    assert "llamacpp:requests_processing 1.0" in metrics
    assert "llamacpp:requests_deferred 3.0" in metrics
    assert (len(slots), slots[0]["is_processing"]) == (1, True)
    assert [status for status, _ in answers] == [200] * 4
    assert [request.prompt for request in generator.requests] == [(2,), (3,), (4,), (5,)]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_slot(stream):
    generator = ScriptedGenerator([WORDS] * 100, gate=threading.Semaphore(1 if stream else 0))
    async with serving(generator) as client:
        leaving = asyncio.create_task(client.post("/completion", json={**BODY, "stream": stream}))
        await until(lambda: generator.requests)
        if stream:
            response = await leaving
            await response.content.readline()
            response.close()
        else:
            leaving.cancel()
        await until(lambda: generator.cancelled)
        assert generator.ended.acquire(timeout=5)
        health = await client.get("/health")

    assert health.status == 200
    assert len(generator.cancelled) == 1


async def test_a_waiting_request_whose_client_left_is_never_begun():
    gate = threading.Semaphore(0)
    generator = ScriptedGenerator(gate=gate)
    async with serving(generator) as client:
        first = asyncio.create_task(ask(client, prompt=[2], n_predict=3))
        await until(lambda: generator.requests)
        second = asyncio.create_task(ask(client, prompt=[3], n_predict=3))
        await asyncio.sleep(0.05)
        third = asyncio.create_task(ask(client, prompt=[4], n_predict=3))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.sleep(0.05)
        gate.release(2)
        await first
        await third

    assert [request.prompt for request in generator.requests] == [(2,), (4,)]


async def test_stopping_ends_the_running_answer_and_refuses_the_next():
    generator = ScriptedGenerator([WORDS] * 100, gate=threading.Semaphore(1))
    server = Server(lambda: (generator, card(generator.engine)))
    async with TestClient(TestServer(server.app)) as client:
        await server.start()
        running = asyncio.create_task(events(client, **BODY))
        await until(lambda: generator.requests)
        waiting = asyncio.create_task(ask(client, **BODY))
        await asyncio.sleep(0.05)
        server.cancel()
        *_, final = await running
        status, body = await waiting
    assert server.join(5)

    assert (final["stop"], final["stop_type"]) == (True, "none")
    assert (status, body["error"]["type"]) == (500, "server_error")
    assert "stopping" in body["error"]["message"]


# Tokens and templates -------------------------------------------------------------------------------------------------


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


# OpenAI ---------------------------------------------------------------------------------------------------------------

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


async def test_a_model_that_reasons_is_only_served_raw():
    template = NUMBERS + "{# <think> #}"
    async with serving(ScriptedGenerator(), template) as client:
        refused, _ = await ask(client, "/v1/chat/completions", **CHAT)
        served, _ = await ask(client, "/v1/chat/completions", **CHAT, reasoning_format="none")

    assert (refused, served) == (501, 200)


# About ----------------------------------------------------------------------------------------------------------------


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
