"""A control is compared by bytes and by counts, and no more is claimed of it."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pilotfish.daemon.lab.validation.checked_prompts import CheckedPrompt
from pilotfish.daemon.lab.validation.control_ollama import ControlOllama, counts_agree, first_other_byte
from pilotfish.daemon.lab.workloads import MODES
from pilotfish.hooks.errors import EngineError


@pytest.mark.parametrize(
    ("mine", "others", "at"),
    [("ab", "ab", None), ("ab", "ac", 1), ("ab", "abc", 2), ("é!", "é?", 2), ("ab\ufffd", "ab", None)],
)
def test_texts_are_compared_byte_by_byte(mine, others, at):
    assert first_other_byte(mine, others) == at


def test_the_terminator_may_be_counted_or_not():
    assert counts_agree(5, 4, terminated=True)
    assert counts_agree(5, 5, terminated=True)
    assert not counts_agree(5, 4, terminated=False)


async def version(request):
    return web.json_response({"version": "0"})


async def test_it_is_asked_raw_and_its_arrivals_are_kept():
    asked = []

    async def generate(request):
        asked.append(await request.json())
        pieces = [{"response": "a"}, {"response": "b"}, {"response": "", "done": True, "eval_count": 2}]
        return web.Response(text="\n".join(map(json.dumps, pieces)))

    app = web.Application()
    app.router.add_post("/api/generate", generate)
    app.router.add_get("/api/version", version)
    async with TestServer(app) as server:
        ollama = ControlOllama(str(server.make_url("/")), "m:latest", 512)
        found = await ollama.answer(CheckedPrompt("p", "<bos>x", (1, 2)), MODES[0], 9)
    assert (found.text, found.tokens, len(found.times.arrivals)) == ("ab", 2, 2)
    assert (asked[0]["prompt"], asked[0]["raw"], asked[0]["options"]["num_predict"]) == ("<bos>x", True, 9)


async def test_one_without_the_model_is_refused_before_anything_runs():
    async def show(request):
        name = (await request.json())["model"]
        if name != "m":
            return web.json_response({"error": f"model '{name}' not found"}, status=404)
        return web.json_response({"details": {}})

    app = web.Application()
    app.router.add_post("/api/show", show)
    app.router.add_get("/api/version", version)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        await ControlOllama(url, "m", 512).ready()
        with pytest.raises(EngineError, match="model 'other' not found; pull it there"):
            await ControlOllama(url, "other", 512).ready()


async def test_nobody_there_is_said_with_the_remedy():
    ollama = ControlOllama("http://127.0.0.1:9", "m", 512)
    with pytest.raises(EngineError, match=r"nobody answers .*; start that Ollama"):
        await ollama.answer(CheckedPrompt("p", "x", (1,)), MODES[0], 9)
    with pytest.raises(EngineError, match="nobody answers"):
        await ollama.ready()
