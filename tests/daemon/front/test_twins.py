"""Models without weights, from which Ollama renders prompts."""

from __future__ import annotations

import json

from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.prompts import ChatWish
from pilotfish.daemon.front.rendering_ollama import chat_body
from pilotfish.daemon.front.requests import Message
from pilotfish.daemon.front.twins import Twins
from pilotfish.manifests import manifest as media
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.store import Store
from tests.daemon.front.tiny_models import write_gguf
from tests.manifests.builders import safetensors_bytes, write_model

BIG = b"weights" * 1000
CALL = {"type": "function", "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}


async def twin_of(store, name, tmp_path):
    twins = Twins(tmp_path / "twins", store)
    twins.write(await Catalog(store).find(name))
    return Store(twins.root), Store(twins.root).manifest(name)


async def test_a_twin_has_the_template_and_none_of_the_turns(store, tmp_path):
    own = store.add_gguf("go", write_gguf(tmp_path / "go.gguf", salt=3), template="{{ .Prompt }}!", system="Be brief.")
    twins, twin = await twin_of(store, "go", tmp_path)
    assert twins.text(twin, media.TEMPLATE) == "{{ .Prompt }}!"
    assert twins.text(twin, media.SYSTEM) is None
    assert twin.size < 300_000
    weights = read_metadata(twins.blob(twin.last(media.MODEL), "go"))
    assert (weights.architecture, weights.chat_template) == ("llama", "{{ messages }}")
    assert own.digest != twin.digest


async def test_a_twin_of_an_mlx_model_has_its_renderer_and_a_gguf(store, tmp_path):
    config = {"model_format": "safetensors", "renderer": "gemma4", "parser": "gemma4", "capabilities": ["tools"]}
    write_model(store.root, "mlx", [(media.TENSOR, safetensors_bytes("a") + BIG, "a")], config)
    twins, twin = await twin_of(store, "mlx", tmp_path)
    said = json.loads(twins.read(twin.config))
    assert said == {**config, "model_format": "gguf"}
    assert twins.text(twin, media.TEMPLATE) == "{{ .Prompt }}"
    assert not twin.of_type(media.TENSOR)


async def test_a_twin_follows_its_model(store, tmp_path):
    twins = Twins(tmp_path / "twins", store)
    for salt, template in enumerate(("one", "two", "one")):
        store.add_gguf("go", write_gguf(tmp_path / "go.gguf", salt=salt % 2), template=template)
        twins.write(await Catalog(store).find("go"))
        there = Store(twins.root)
        assert there.text(there.manifest("go"), media.TEMPLATE) == template


async def test_a_chat_is_asked_in_ollamas_form(store):
    model = await Catalog(store).find("tiny")
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    messages = [Message("assistant", "", thinking="hm", calls=(CALL,)), Message("tool", "1", tool_name="f")]
    body = chat_body(model, messages, ChatWish(tools=(tool,), think="low"))
    assert body == {
        "model": "registry.ollama.ai/library/tiny:latest",
        "messages": [
            {
                "role": "assistant",
                "content": "",
                "thinking": "hm",
                "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}],
            },
            {"role": "tool", "content": "1", "tool_name": "f"},
        ],
        "tools": [tool],
        "think": "low",
        "truncate": False,
    }
