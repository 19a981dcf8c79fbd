"""`pilotfish serve --upstream` before a real Ollama, stock and overlaid, with the clients that people use."""

from __future__ import annotations

import os
import subprocess
import sys

import openai
import psutil
import pytest

from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.prompts import ChatWish
from pilotfish.daemon.front.rendering_ollama import RenderingOllama
from pilotfish.daemon.front.requests import Message
from pilotfish.daemon.front.twins import Twins
from pilotfish.daemon.front.upstream_client import UpstreamClient
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.daemon.processes.ports import free_port
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from tests.e2e.ollama_server import GREEDY, MODEL, SEEDED, serving
from tests.e2e.same_in_both import SAME_IN_BOTH, answers_of
from tests.manifests.builders import safetensors_bytes, write_model
from tests.waiting import is_gone, wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(300)]

LINES = "Write ten lines, each starting with Alpha."
MESSAGES = [{"role": "user", "content": LINES}]


@pytest.fixture(scope="module")
def before(ollama_binary, folder, models):
    """`before(server, flags...)`: pilotfish's own server before that one."""

    def begin(upstream, *flags):
        path = {"PATH": f"{ollama_binary.parent}{os.pathsep}{os.environ['PATH']}"}  # the one that renders prompts
        command = [sys.executable, "-m", "pilotfish.daemon.cli", "-v", "serve", "--host", "127.0.0.1:{port}"]
        return serving(ollama_binary, folder / "before", models, path, [*command, "--upstream", upstream.url, *flags])

    return begin


@pytest.fixture(scope="module")
def sharing(before, stock):
    """It computes GGUF models, too."""
    with before(stock, "--serve-gguf") as server:
        yield server


def runners(server):
    """The runners that a server of ours has started."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return [child for child in children if any("runner" in word for word in child.cmdline())]


def test_the_clients_are_served_here_and_nothing_is_loaded_there(sharing, stock, javascript):
    stock.unload()
    whole = sharing.client.generate(MODEL, LINES, options=SEEDED)
    parts = list(sharing.client.generate(MODEL, LINES, options=SEEDED, stream=True))
    (chatted,) = javascript(sharing, "chat", {"model": MODEL, "messages": MESSAGES, "options": SEEDED})
    streamed = javascript(sharing, "chat", {"model": MODEL, "messages": MESSAGES, "options": SEEDED, "stream": True})
    client = openai.OpenAI(base_url=f"{sharing.url}/v1", api_key="none")
    wish = {"model": MODEL, "messages": MESSAGES, "max_tokens": 24, "temperature": 0, "seed": 1}
    answer = client.chat.completions.create(**wish)
    chunks = list(client.chat.completions.create(stream=True, **wish))

    assert "".join(part.response for part in parts) == whole.response
    assert "".join(part["message"]["content"] for part in streamed) == chatted["message"]["content"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content
    assert (whole.eval_count, chatted["eval_count"], answer.usage.completion_tokens) == (48, 48, 24)
    assert [model.model for model in sharing.client.ps().models] == [f"{MODEL}:latest"]
    assert stock.client.ps().models == []


def test_a_client_that_leaves_frees_the_model_wherever_it_is(before, stock, sharing, javascript):
    request = {"model": MODEL, "prompt": LINES, "stream": True, "options": {**GREEDY, "num_predict": 1500}}
    with before(stock) as relaying:
        for server in (sharing, relaying):
            assert javascript(server, "generate", request, leave_after=3)[-1] == {"error": "AbortError"}
        wait_until(lambda: not stock.runner().get("/slots").json()[0]["is_processing"], "it still generates")


async def test_what_is_relayed_is_answered_as_by_the_server_itself(before, stock):
    with before(stock) as relaying:
        mine, theirs = [await answers_of(server.url, SAME_IN_BOTH) for server in (relaying, stock)]
    assert [(one, other) for one, other in zip(mine, theirs, strict=True) if one != other] == []


def test_models_are_made_looked_at_used_and_removed_through_it(sharing, stock, folder):
    """The blobs of `ollama create` are what is largest on its way, and what an endpoint for anything but text says."""
    environment = {**os.environ, "OLLAMA_HOST": sharing.url}
    shown = sharing.client.show(MODEL)
    (folder / "Again").write_text(f"{shown.modelfile}\nSYSTEM Again.\n")

    def ollama(*words):
        binary = stock.process.args[0]
        done = subprocess.run([binary, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ollama("create", "again", "-f", str(folder / "Again"))
    ollama("cp", "again", "more")
    ollama("rm", "again")
    assert {f"{MODEL}:latest", "more:latest"} <= {model.model for model in sharing.client.list().models}
    assert sharing.client.show("more").modelfile.count("Again.") == 1
    asked = {"model": MODEL, "input": "a text"}
    mine, theirs = (server.http.post("/api/embed", json=asked) for server in (sharing, stock))
    assert (mine.status_code, mine.text) == (theirs.status_code, theirs.text)
    ollama("rm", "more")


def test_before_an_overlaid_ollama_each_model_speculates_once(before, overlaid):
    overlaid.unload()
    with before(overlaid) as relaying:
        answer = relaying.client.generate(MODEL, LINES, options={**GREEDY, "num_predict": 96})
        assert answer.response == overlaid.client.generate(MODEL, LINES, options={**GREEDY, "num_predict": 96}).response
        assert overlaid.decisions()[-1]["decision"] == "runner"
        assert overlaid.drafted() > 0
        assert runners(relaying) == []


@pytest.mark.parametrize("templates", ["ollama", "upstream"])
def test_prompts_are_rendered_as_the_upstream_renders_them(before, stock, templates):
    """Its model has a template of its own, that says something else than the one that comes with the weights."""
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    body = {"model": MODEL, "messages": messages, "stream": False, "_debug_render_only": True}
    theirs = stock.http.post("/api/chat", json=body).json()
    stock.unload()
    with before(stock, "--serve-gguf", "--templates", templates) as rendering:
        mine = rendering.http.post("/api/chat", json=body).json()
        answer = rendering.client.chat(MODEL, messages, options=GREEDY)
        loaded = [model.model for model in stock.client.ps().models]

    assert mine["_debug_info"]["rendered_template"] == theirs["_debug_info"]["rendered_template"]
    assert answer.prompt_eval_count == stock.client.chat(MODEL, messages, options=GREEDY).prompt_eval_count
    assert loaded == ([] if templates == "ollama" else [f"{MODEL}:latest"])


def test_what_renders_prompts_goes_with_its_server_however_that_ends(before, stock):
    with before(stock, "--serve-gguf") as rendering:
        rendering.client.chat(MODEL, MESSAGES, options={**GREEDY, "num_predict": 1})
        started = psutil.Process(rendering.process.pid).children(recursive=True)
        assert any("ollama" in child.name() for child in started)
        rendering.process.kill()
        for child in started:
            wait_until(lambda child=child: is_gone(child), f"{child} was left behind")


async def test_prompts_of_mlx_models_are_rendered_where_ollama_cannot_load_them(ollama_binary, tmp_path):
    """By the built-in renderer that the manifest names, with its tools and its way of thinking."""
    config = {
        "model_format": "safetensors",
        "renderer": "qwen3-coder",
        "parser": "qwen3-coder",
        "capabilities": ["tools"],
    }
    write_model(tmp_path, "mlx", [(media.TENSOR, safetensors_bytes("a"), "a")], config)
    store = Store(tmp_path)
    model = await Catalog(store).find("mlx")
    nobody = UpstreamClient(ServerAddress("127.0.0.1", free_port()), "1.1 test")
    ollama = RenderingOllama(str(ollama_binary), Twins(tmp_path / "twins", store), nobody)
    tool = {"type": "function", "function": {"name": "weather", "description": "It rains.", "parameters": {}}}
    try:
        prompt = await ollama(model, [Message("system", "Be brief."), Message("user", "hi")], ChatWish(tools=(tool,)))
    finally:
        await ollama.aclose()
        await nobody.aclose()
    assert prompt.startswith("<|im_start|>system\nBe brief.")
    assert "<name>weather</name>" in prompt
    assert prompt.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
