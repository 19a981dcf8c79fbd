"""Sharing the endpoints that generate with an Ollama: what is computed here, and what is handed on as it came."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from pilotfish.daemon.front import upstream_client
from pilotfish.daemon.front.settings import Upstream
from pilotfish.daemon.http import switching
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.daemon.processes.ports import free_port
from tests.daemon.front.fake_upstream import END, fake_upstream
from tests.daemon.front.tiny_models import write_gguf
from tests.waiting import until

ASK = {"model": "tiny", "prompt": "echo:one two", "stream": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture
async def upstream():
    async with fake_upstream() as upstream:
        yield upstream


@pytest.fixture
def before(start, upstream, store, tmp_path):
    """Start a front before the upstream, which computes GGUF models itself unless told otherwise.

    `go` has a Go template, by which Ollama renders its prompts.
    """
    store.add_gguf("go", write_gguf(tmp_path / "go.gguf", salt=3), template="{{ .Prompt }}!")

    def begin(*arguments, serve_gguf=True, templates="own", **changes):
        return start(*arguments, upstream=Upstream(upstream.address, serve_gguf, templates), **changes)

    return begin


@pytest.fixture
async def front(before, upstream):
    async with before() as front:
        upstream.visits.clear()
        yield front


def generated(upstream):
    return [visit for visit in upstream.visits if b"POST" in visit.head]


async def test_a_model_of_ours_is_answered_here_on_a_connection_of_its_own(front, upstream):
    async with front.post("/api/generate", ASK) as response:
        assert (await response.json())["response"] == "one two"
        assert response.headers["Connection"] == "close"
    messages = [{"role": "user", "content": "echo:one two"}]
    for path in ("/v1/chat/completions", "/api/chat"):
        status, _ = await front.ask(path, {"model": "tiny", "messages": messages, "stream": False})
        assert status == 200
    lines = await front.lines("/api/generate", {**ASK, "stream": True})
    assert "".join(line["response"] for line in lines) == "one two"
    assert upstream.visits == []


@pytest.mark.parametrize("model", ["nope", "embed", "no/such/name/at/all", 7, None])
async def test_any_other_model_is_the_upstreams(front, upstream, model):
    assert await front.ask("/api/generate", {**ASK, "model": model}) == (200, {"upstream": True})
    assert len(upstream.visits) == 1


async def test_gguf_models_are_the_upstreams_unless_the_user_says_otherwise(before, upstream):
    async with before(serve_gguf=False) as front:
        assert await front.ask("/api/generate", ASK) == (200, {"upstream": True})
        assert front.journal_of("start") == []


async def test_a_model_that_is_switched_off_is_the_upstreams(front, monkeypatch):
    monkeypatch.setenv("PILOTFISH", "off")
    assert await front.ask("/api/generate", ASK) == (200, {"upstream": True})


async def test_what_was_read_to_decide_is_handed_on_as_it_came(front, upstream):
    raw = b'{"model": "nope",\r\n "prompt": "caf\xe9 \\ud83d", "options": {"x": 1e400}} trailing'
    chunks = b"2;odd=1\r\n%s\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n" % (raw[:2], len(raw) - 2, raw[2:])

    async def script(visit):
        visit.body = await visit.reader.readexactly(len(chunks))
        await visit.answer(b"as it came")

    upstream.script = script
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
    writer.write(
        b"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nX-Odd:  a\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    assert await reader.readuntil(END) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(chunks)
    assert (await reader.read()).endswith(END + b"as it came")
    writer.close()
    (visit,) = upstream.visits
    assert visit.body == chunks
    assert b"\r\nX-Odd:  a\r\n" in visit.head
    assert visit.header("expect") == [], "it was told to go on already"


@pytest.mark.parametrize(
    "odd",
    [
        b"Content-Length: %(size)d\nHost: localhost\n\n",
        b"Host: localhost\r\nContent-Length: %(size)d\r\nContent-Length: %(size)d\r\n\r\n",
        b"Host: localhost\r\nX-Long: a\r\n b\r\nContent-Length: %(size)d\r\n\r\n",
        b"Host: localhost\r\nContent-Encoding: zstd\r\nContent-Length: %(size)d\r\n\r\n",
    ],
    ids=["line ends", "two lengths", "folded", "compressed"],
)
async def test_what_servers_may_read_differently_is_the_upstreams_even_for_a_model_of_ours(front, upstream, odd):
    body = json.dumps(ASK).encode()
    upstream.script = lambda visit: visit.answer(b"theirs")
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
    first = b"POST /api/generate HTTP/1.1" + (b"\n" if odd.endswith(b"t\n\n") else b"\r\n")
    writer.write(first + odd % {b"size": len(body)} + body)
    assert (await reader.read()).endswith(END + b"theirs")
    writer.close()
    assert upstream.visits[0].head.startswith(b"POST /api/generate HTTP/1.1\r\n")


async def test_a_request_too_long_to_look_at_is_handed_on_before_it_ends(front, upstream, monkeypatch):
    monkeypatch.setattr(switching, "MAX_KEPT", 10_000)
    status, answer = await front.ask("/api/generate", {**ASK, "prompt": "x" * 1_000_000})
    assert (status, answer) == (200, {"upstream": True})


@pytest.mark.parametrize(
    "more",
    [{"suffix": "x"}, {"images": ["aGk="]}, {"think": True}, {"template": "{{ .Prompt }}!"}, {"options": {"stop": 7}}],
    ids=["insert", "images", "think", "template", "malformed"],
)
async def test_what_would_be_refused_here_is_the_upstreams(front, upstream, more):
    assert await front.ask("/api/generate", {**ASK, **more}) == (200, {"upstream": True})


async def test_a_prompt_that_does_not_fit_is_refused_here(front, upstream):
    body = {**ASK, "prompt": "long " * 2000, "truncate": False, "options": {"num_ctx": 64}}
    status, answer = await front.ask("/api/generate", body)
    assert status == 400
    assert "context" in answer["error"]
    assert upstream.visits == []


async def test_a_model_that_cannot_be_loaded_here_is_the_upstreams_for_a_while(before, upstream):
    async with before("--fail-load", "no memory") as front:
        for _ in range(2):
            assert await front.ask("/api/generate", ASK) == (200, {"upstream": True})
        assert len(generated(upstream)) == 2


async def test_a_runner_that_ends_before_its_answer_has_begun_costs_nothing_but_time(front):
    assert await front.ask("/api/generate", {**ASK, "prompt": "crash echo:abcdefgh"}) == (200, {"upstream": True})


async def test_a_client_that_leaves_ends_the_request_here_too(front):
    async with front.post("/api/generate", {"model": "tiny", "prompt": "endless"}) as response:
        await response.content.readline()
        response.close()
        await until(lambda: front.journal_of("cancelled"))


async def test_what_is_loaded_here_is_listed_with_what_is_loaded_there(front):
    assert [model["name"] for model in (await front.get("/api/ps"))["models"]] == ["theirs:latest"]
    await front.ask("/api/generate", {"model": "tiny", "keep_alive": -1})
    assert [model["name"] for model in (await front.get("/api/ps"))["models"]] == ["theirs:latest", "tiny:latest"]


async def test_a_model_is_unloaded_in_both_places(front, upstream):
    await front.ask("/api/generate", {"model": "tiny"})
    status, answer = await front.ask("/api/generate", {"model": "tiny", "keep_alive": "0s"})
    assert (status, answer["done_reason"]) == (200, "unload")
    assert len(generated(upstream)) == 1
    await until(lambda: is_only_theirs(front), "it is still loaded")


async def is_only_theirs(front):
    return len((await front.get("/api/ps"))["models"]) == 1


async def test_models_of_ours_are_answered_while_the_upstream_is_away(start):
    upstream = Upstream(ServerAddress("127.0.0.1", free_port()), serve_gguf=True)
    async with start(upstream=upstream) as front:
        status, answer = await front.ask("/api/generate", {**ASK, "prompt": "echo:here"})
        assert (status, answer["response"]) == (200, "here")
        assert [model["name"] for model in (await front.get("/api/ps"))["models"]] == ["tiny:latest"]
        status, answer = await front.ask("/api/generate", {**ASK, "model": "nope"})
        assert status == 502
        assert upstream.address.url in answer["error"]
        status, answer = await front.ask("/v1/completions", {"model": "tiny", "prompt": "x", "suffix": "y"})
        assert status == 400
        assert "does not support insert" in answer["error"]["message"]
        async with front.post("/api/generate", ASK, headers={"Origin": "https://evil.example"}) as response:
            assert response.status == 403


@pytest.mark.parametrize("allowed", [True, False])
async def test_pages_of_other_origins_are_let_in_as_the_upstream_lets_them_in(front, upstream, allowed):
    async def script(visit):
        assert visit.header("origin") == ["https://any.example"]
        lines = b"Access-Control-Allow-Origin: https://any.example\r\nVary: Origin\r\n"
        await visit.answer(b"", *((b"200 OK", lines) if allowed else (b"403 Forbidden",)))

    upstream.script = script
    async with front.post("/api/generate", ASK, headers={"Origin": "https://any.example"}) as response:
        assert response.status == (200 if allowed else 403)
        assert response.headers.get("Access-Control-Allow-Origin") == ("https://any.example" if allowed else None)


async def test_an_upstream_that_says_nothing_of_an_origin_is_not_waited_for(front, upstream, monkeypatch):
    monkeypatch.setattr(upstream_client, "_PATIENCE", aiohttp.ClientTimeout(total=0.1))
    upstream.script = lambda visit: asyncio.sleep(60)
    async with asyncio.timeout(30):
        for origin, status in (("http://localhost:3000", 200), ("https://any.example", 403)):
            async with front.post("/api/generate", ASK, headers={"Origin": origin}) as response:
                assert response.status == status


async def test_a_whole_url_with_a_foreign_name_reaches_nobody(front, upstream):
    body = json.dumps(ASK).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
    head = b"POST http://evil.example/api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
    writer.close()
    assert (front.journal_of("start"), upstream.visits) == ([], [])


async def test_prompts_are_rendered_by_the_upstream_where_it_is_asked_to(before, upstream):
    """Of a model, that is, whose prompts Ollama renders itself."""
    messages = [{"role": "user", "content": "echo:one"}]
    async with before(templates="upstream") as front:
        for model in ("go", "tiny"):
            await front.ask("/api/chat", {"model": model, "messages": messages, "stream": False})
        await front.ask("/v1/completions", {"model": "go", "prompt": "two"})
        await front.ask("/api/generate", {**ASK, "model": "go", "raw": True})
        prompts = [prompt_of(entry) for entry in front.journal_of("completion")]
    assert prompts == ["[echo:one]", "<user>echo:one\n<assistant>", "[two]", "echo:one two"]
    assert len(generated(upstream)) == 2


def prompt_of(entry):
    prompt = entry["body"]["prompt"]
    return prompt if isinstance(prompt, str) else bytes(prompt).decode()


async def test_what_the_upstream_refuses_to_render_is_its_to_answer(before, upstream):
    async def script(visit):
        body = json.loads(await visit.read_body() or b"{}")
        refused = "_debug_render_only" in body
        await visit.answer(b'{"error":"no"}' if refused else b"{}", b"400 Bad Request" if refused else b"200 OK")

    async with before(templates="upstream") as front:
        upstream.script = script
        assert await front.ask("/api/generate", {**ASK, "model": "go"}) == (200, {})
