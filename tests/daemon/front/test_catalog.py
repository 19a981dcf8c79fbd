"""What the front reads of an MLX model."""

from __future__ import annotations

import json

import pytest

from pilotfish.daemon.front.catalog import Catalog
from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from tests.daemon.chat.family_templates import THINKING
from tests.manifests.builders import safetensors_bytes, write_model

TENSOR = (media.TENSOR, safetensors_bytes("a"), "a")
CONFIG = {"model_format": "safetensors", "capabilities": ["completion", "vision"]}


def files(**named):
    names = {"config": "config.json", "tokenizer": "tokenizer_config.json", "jinja": "chat_template.jinja"}
    return [(media.JSON, text.encode(), names[name]) for name, text in named.items()]


@pytest.mark.parametrize(
    "named",
    [
        {"jinja": THINKING, "tokenizer": json.dumps({"chat_template": "older"})},
        {"tokenizer": json.dumps({"chat_template": THINKING})},
        {"tokenizer": json.dumps({"chat_template": [{"name": "rag"}, {"name": "default", "template": THINKING}]})},
    ],
    ids=["a file", "a key", "several"],
)
async def test_it_is_served_as_its_chat_template_says(store, named):
    write_model(store.root, "mlx", [TENSOR, *files(config='{"max_position_embeddings": 77}', **named)], CONFIG)
    model = await Catalog(store).find("mlx")
    assert (model.chat_template, model.train_context) == (THINKING, 77)
    assert model.capabilities == ("completion", "tools", "thinking")
    assert model.weights == model.manifest.path


async def test_the_context_of_a_model_with_several_parts_is_that_of_its_text(store):
    config = {"text_config": {"max_position_embeddings": 5}, "max_position_embeddings": 9}
    write_model(store.root, "mlx", [TENSOR, *files(config=json.dumps(config))], CONFIG)
    model = await Catalog(store).find("mlx")
    assert (model.train_context, model.has_chat_template, model.capabilities) == (5, False, ("completion",))


async def test_one_pulled_again_is_another_model_to_load(store):
    keys = []
    for number in range(2):
        write_model(store.root, "mlx", [TENSOR, *files(config=json.dumps({"number": number}))], CONFIG)
        keys.append((await Catalog(store).find("mlx")).key)
    assert len(set(keys)) == 2


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000], ids=["cut off", "no object", "too deep"])
async def test_a_file_that_is_no_json_object_is_named(store, text):
    write_model(store.root, "mlx", [TENSOR, *files(config=text)], CONFIG)
    with pytest.raises(BrokenModel, match=r"config\.json of mlx"):
        await Catalog(store).find("mlx")


async def test_without_an_engine_for_it_the_answer_says_what_to_do(front, store):
    write_model(store.root, "mlx", [TENSOR], CONFIG)
    status, answer = await front.ask("/api/generate", {"model": "mlx", "prompt": "x", "raw": True})
    assert status == 400
    assert "no engine here computes it" in answer["error"]
    assert "ollama serve" in answer["error"]
