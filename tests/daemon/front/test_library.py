"""What is installed and what is loaded."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import gguf
import pytest

from pilotfish.manifests.store import Store


async def test_the_root_and_the_version_answer_get_and_head(front):
    async with front.http.get(front.url) as response:
        assert (response.status, await response.text()) == (200, "pilotfish is running")
    for path in ("/", "/api/version", "/api/tags"):
        async with front.http.head(front.url + path) as response:
            assert (response.status, await response.read()) == (200, b"")
    version = await front.get("/api/version")
    assert tuple(int(part) for part in version["version"].split(".")) >= (0, 33, 0)


async def test_tags_lists_every_model_as_ollama_does(front, store: Store):
    models = {model["name"]: model for model in (await front.get("/api/tags"))["models"]}
    assert set(models) == {"tiny:latest", "other:v2", "bare:latest", "embed:latest", "caller:latest"}
    tiny = models["tiny:latest"]
    manifest = store.manifest("tiny")
    assert tiny["model"] == "tiny:latest"
    assert tiny["digest"] == manifest.digest
    assert tiny["size"] == manifest.size
    assert tiny["details"]["family"] == "llama"
    assert tiny["details"]["format"] == "gguf"
    assert tiny["details"]["context_length"] == 4096
    assert tiny["capabilities"] == ["completion"]
    assert models["embed:latest"]["capabilities"] == ["embedding"]
    assert datetime.fromisoformat(tiny["modified_at"]).timestamp() == pytest.approx(manifest.modified, abs=1e-3)


async def test_a_broken_manifest_does_not_hide_the_others(front, store: Store):
    (store.manifests / "registry.ollama.ai" / "library" / "tiny" / "broken").write_bytes(b"")
    names = {model["name"] for model in (await front.get("/api/tags"))["models"]}
    assert "tiny:latest" in names
    assert "tiny:broken" not in names


async def test_a_model_that_appears_is_listed_at_once(front, store: Store):
    await front.get("/api/tags")
    store.add_gguf("late", store.blob(store.manifest("tiny").layers[0]))
    assert "late:latest" in {model["name"] for model in (await front.get("/api/tags"))["models"]}


async def test_show_tells_what_the_manifest_and_the_weights_say(front):
    status, shown = await front.ask("/api/show", {"model": "OTHER:v2"})  # case does not count
    assert status == 200
    assert shown["system"] == "Be brief."
    assert shown["parameters"].split() == ["stop", '"##"']
    assert shown["template"] == "{{ messages }}"
    assert shown["capabilities"] == ["completion"]
    assert shown["model_info"]["general.architecture"] == "llama"
    assert shown["model_info"]["general.parameter_count"] == 1024
    assert shown["model_info"]["tokenizer.ggml.tokens"] is None
    assert "tokenizer.chat_template" not in shown["model_info"]
    assert "SYSTEM Be brief." in shown["modelfile"].splitlines()
    assert "PARAMETER stop ##" in shown["modelfile"].splitlines()
    assert "tensors" not in shown


async def test_a_verbose_show_has_arrays_and_tensors(front):
    _, shown = await front.ask("/api/show", {"name": "tiny", "verbose": True})
    assert shown["model_info"]["tokenizer.ggml.tokens"] == ["a", "b", "c"]
    assert shown["tensors"] == [{"name": "token_embd.weight", "type": "F32", "shape": [32, 32]}]


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
async def test_numbers_that_json_does_not_have_are_shown_as_null(front, store, tmp_path, odd):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_float32("llama.rope.scaling.factor", odd)
    writer.add_token_scores([0.0, odd, 2.0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    store.add_gguf("odd", tmp_path / "odd.gguf")
    async with front.post("/api/show", {"model": "odd", "verbose": True}) as response:
        info = json.loads(await response.text(), parse_constant=pytest.fail)["model_info"]
    assert info["llama.rope.scaling.factor"] is None
    assert info["tokenizer.ggml.scores"] == [0.0, None, 2.0]


async def test_show_without_a_name_says_so(front):
    assert await front.ask("/api/show", {"verbose": True}) == (400, {"error": "model is required"})


async def test_ps_shows_what_is_loaded_until_when(front):
    await front.ask("/api/generate", {"model": "tiny", "keep_alive": "1h"})
    await front.ask("/api/generate", {"model": "bare", "keep_alive": -1})
    forever, hour = (await front.get("/api/ps"))["models"]  # the one that stays longest comes first
    assert (forever["name"], hour["name"]) == ("bare:latest", "tiny:latest")
    assert datetime.fromisoformat(forever["expires_at"]).year > 2300
    left = datetime.fromisoformat(hour["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert hour["context_length"] == 4096
    assert hour["size"] > 0


async def test_v1_models(front):
    listed = await front.get("/v1/models")
    assert {model["id"] for model in listed["data"]} == {
        "tiny:latest",
        "other:v2",
        "bare:latest",
        "embed:latest",
        "caller:latest",
    }
    assert listed["data"][0]["owned_by"] == "library"
    assert (await front.get("/v1/models/other:v2"))["object"] == "model"
    async with front.http.get(f"{front.url}/v1/models/nope") as response:
        error = (await response.json())["error"]
        assert (response.status, error["type"]) == (404, "not_found_error")
        assert error["message"] == "model 'nope' not found"
