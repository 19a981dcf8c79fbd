"""Times and counts of one answer, on a clock that the answer itself moves."""

from __future__ import annotations

import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.lab.bench_measuring import BenchedServer, Chunk, LlamaServer, measure
from pilotfish.daemon.lab.bench_tasks import Task
from pilotfish.daemon.lab.workloads import MODES, Workload

TASK = Task(Workload("a", "copy", "say a", ""), "first", MODES[1], "<user>say a", (5, 6), 40)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_the_first_token_and_the_end_are_timed_from_the_moment_the_request_is_sent():
    clock = Clock()

    async def chunks():
        clock.now += 2
        yield Chunk()  # headers of some kind: no token yet
        clock.now += 1
        yield Chunk((7,), "a")
        clock.now += 4
        yield Chunk((8, 9), "bc")
        yield Chunk(tokens=3, drafted=5, accepted=2, parity="lane", lane="x")

    answer = await measure(chunks(), clock)
    assert (answer.first_token, answer.seconds, answer.decode_seconds) == (3, 7, 4)
    assert (answer.ids, answer.text, answer.tokens, answer.decoded) == ((7, 8, 9), "abc", 3, 2)
    assert (answer.drafted, answer.accepted, answer.parity, answer.lane) == (5, 2, "lane", "x")


async def test_an_answer_of_nothing_has_no_rate_to_divide_by():
    async def chunks():
        yield Chunk()

    answer = await measure(chunks(), Clock())
    assert (answer.tokens, answer.decoded, answer.decode_seconds) == (0, 0, 0)


async def served(path: str, lines: list[bytes]):
    """A server that answers `path` with `lines`, and the bodies it got."""
    bodies: list[dict] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.Response(body=b"".join(lines))

    app = web.Application()
    app.router.add_post(path, answer)
    server = TestServer(app)
    await server.start_server()
    return server, bodies


async def test_a_llama_server_gets_ids_and_sampling_and_its_final_event_is_read():
    events = [
        {"content": "a", "tokens": [7], "stop": False},
        {
            "content": "",
            "tokens": [],
            "stop": True,
            "tokens_predicted": 2,  # one id of a character that never became whole was not streamed
            "timings": {"draft_n": 4, "draft_n_accepted": 3},
            "pilotfish": {"parity": "lane", "lane": "K bf16"},
        },
    ]
    server, bodies = await served("/completion", [b"data: " + json.dumps(e).encode() + b"\n\n" for e in events])
    async with new_session() as session:
        llama = LlamaServer(RunnerClient(session, server.port), {"speculate": False})
        answer = await measure(llama.chunks(TASK))
    await server.close()
    assert (answer.ids, answer.text, answer.tokens, answer.drafted, answer.accepted) == ((7,), "a", 2, 4, 3)
    assert (answer.parity, answer.lane) == ("lane", "K bf16")
    (body,) = bodies
    assert (body["prompt"], body["n_predict"], body["stream"], body["speculate"]) == ([5, 6], 40, True, False)
    assert (body["temperature"], body["seed"], body["repeat_penalty"], body["top_p"]) == (0.8, 42, 1.1, 0.9)


async def test_an_ollama_gets_the_raw_prompt_and_its_counts_are_read():
    last = {"response": "", "done": True, "eval_count": 9, "pilotfish": {"tokens": [1, 2], "draft_n": 3}}
    lines = [json.dumps(event).encode() + b"\n" for event in ({"response": "hi", "done": False}, last)]
    server, bodies = await served("/api/generate", lines)
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        answer = await measure(BenchedServer(client, "smollm2", 512).chunks(TASK))
    await server.close()
    assert (answer.text, answer.tokens, answer.ids, answer.drafted) == ("hi", 9, (1, 2), 3)
    (body,) = bodies
    assert (body["model"], body["prompt"], body["raw"]) == ("smollm2", "<user>say a", True)
    assert (body["options"]["num_predict"], body["options"]["num_ctx"], body["options"]["seed"]) == (40, 512, 42)


async def test_a_refusal_reaches_the_caller():
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"code": 400, "message": "too long"}}, status=400)

    app = web.Application()
    app.router.add_post("/completion", refuse)
    server = TestServer(app)
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(Exception, match="too long"):
            await measure(LlamaServer(RunnerClient(session, server.port)).chunks(TASK))
    await server.close()
