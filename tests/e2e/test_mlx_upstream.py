"""MLX models from their tensor blobs to a client: `pilotfish serve --upstream` before a real Ollama.

Ollama's MLX engine is on Macs only; that it is asked shows in what Ollama answers elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.lab.mlx_models.random_mlx import add_random_model
from pilotfish.manifests import manifest as media
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_writer import write_tensor_model
from pilotfish.manifests.writer import add_bytes
from tests.daemon.chat.family_templates import THINKING
from tests.e2e.ollama_server import OllamaServer, serving
from tests.manifests.builders import smollm2_path
from tests.server_processes import RUNNER, running

pytestmark = [pytest.mark.ollama, pytest.mark.drafters, pytest.mark.timeout(300)]

TINY, BROKEN, CALLER, OTHER = "tiny-mlx", "broken-mlx", "caller-mlx", "smol"
MESSAGES = [{"role": "user", "content": "one two three one two three one two"}]
WAYS = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
NOT_HERE = "MLX"  # what Ollama says on Linux: its MLX engine is not there


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """MLX models with random weights, and a GGUF model. One has a broken tensor, one a template that shows tools."""
    store = Store(tmp_path_factory.mktemp("mlx") / "models")
    add_random_model(store, TINY)
    add_random_model(store, BROKEN, seed=1)
    template = add_bytes(store.root, THINKING.encode(), media.JSON, "chat_template.jinja")
    write_tensor_model(store.root, ModelName.parse(CALLER), [*store.manifest(TINY).layers, template])
    store.add_gguf(OTHER, smollm2_path())
    layer = next(one for one in store.manifest(BROKEN).layers if one.name == "model.layers.0.mlp.up_proj.weight")
    blob = store.blob(layer)
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x55")
    return store


@pytest.fixture(scope="module")
def upstream(ollama_binary: Path, store: Store) -> Iterator[OllamaServer]:
    with serving(ollama_binary, store.root.parent / "stock", store.root) as server:
        yield server


@pytest.fixture(scope="module")
def before(ollama_binary: Path, store: Store, upstream: OllamaServer) -> Iterator[OllamaServer]:
    path = {"PATH": f"{ollama_binary.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pilotfish.daemon.cli", "-v", "serve", "--host", "127.0.0.1:{port}"]
    command += ["--upstream", upstream.url]
    with serving(ollama_binary, store.root.parent / "before", store.root, path, command) as server:
        yield server


def chat(server: OllamaServer, model: str = TINY, options: dict[str, Any] | None = None, **more: Any) -> Any:
    body = {"model": model, "messages": MESSAGES, "stream": False, **more}
    body["options"] = {"num_predict": 24, "num_ctx": 256, **(options or {})}
    return server.http.post("/api/chat", json=body)


def test_the_model_is_listed_by_the_upstream_and_answered_here(before: OllamaServer, upstream: OllamaServer) -> None:
    mine, theirs = (
        {model["name"]: model for model in server.http.get("/api/tags").json()["models"]}
        for server in (before, upstream)
    )  # Ollama lists what was written in the same second in any order
    assert mine == theirs
    assert {f"{TINY}:latest", f"{OTHER}:latest"} <= set(mine)
    there = chat(upstream)
    assert (there.status_code >= 400, NOT_HERE in there.text) == (True, True)
    assert chat(before).json()["eval_count"] == 24
    assert [model["name"] for model in before.http.get("/api/ps").json()["models"]] == [f"{TINY}:latest"]


@pytest.mark.parametrize("options", WAYS, ids=["greedy", "seeded"])
def test_an_answer_is_the_same_with_drafts_and_without(before: OllamaServer, options: dict[str, Any]) -> None:
    plain, drafted = (chat(before, options={**options, "speculate": way}).json() for way in (False, True))
    assert plain["message"] == drafted["message"]
    assert plain["message"]["content"]
    assert (plain["eval_count"], plain["prompt_eval_count"]) == (drafted["eval_count"], drafted["prompt_eval_count"])


def test_the_runners_ids_are_the_same_with_drafts_and_without(store: Store, tmp_path: Path) -> None:
    manifest = store.manifest(TINY).path
    with running(RUNNER, manifest, tmp_path / "log", "--ctx-size", "256") as server:
        for options in WAYS:
            asked = {"prompt": MESSAGES[0]["content"] * 3, "n_predict": 24, "return_tokens": True, **options}
            plain, drafted = (server.post("/completion", **asked, speculate=way).json() for way in (False, True))
            assert plain["tokens"] == drafted["tokens"]
            assert len(plain["tokens"]) == 24
        drafts = server.http.get("/metrics").text
    (total,) = (line for line in drafts.splitlines() if line.startswith("pilotfish_drafted_tokens_total "))
    assert float(total.split()[-1]) > 0


def test_a_broken_tensor_is_named_and_the_other_models_are_served(before: OllamaServer) -> None:
    refused = chat(before, BROKEN)
    assert refused.status_code == 500
    assert BROKEN in refused.json()["error"]
    assert "tensor layer model.layers.0.mlp.up_proj.weight" in refused.json()["error"]
    assert chat(before).status_code == 200
    assert chat(before, OTHER, {"num_predict": 2, "temperature": 0}).json()["eval_count"] == 2


@pytest.mark.parametrize("model", [TINY, CALLER])
@pytest.mark.parametrize(
    "wish",
    [{"format": "json"}, {"format": {"type": "object"}}, {"format": "json", "stream": True}, {"tools": [TOOL]}],
    ids=["json", "schema", "a stream", "tools"],
)
def test_what_needs_a_grammar_is_the_upstreams(
    before: OllamaServer, upstream: OllamaServer, model: str, wish: Any
) -> None:
    mine, theirs = chat(before, model, **wish), chat(upstream, model, **wish)
    assert (mine.status_code, mine.text) == (theirs.status_code, theirs.text)


def test_what_needs_a_grammar_is_the_upstreams_through_openais_api_too(before: OllamaServer) -> None:
    asked = {"model": TINY, "messages": MESSAGES, "response_format": {"type": "json_object"}}
    answer = before.http.post("/v1/chat/completions", json=asked)
    assert (answer.status_code >= 400, NOT_HERE in answer.text) == (True, True)


def test_without_an_upstream_a_grammar_is_refused_with_what_to_do(
    ollama_binary: Path, store: Store, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pilotfish.daemon.cli", "serve", "--host", "127.0.0.1:{port}"]
    with serving(ollama_binary, tmp_path / "alone", store.root, {}, command) as alone:
        for wish in ({"format": "json"}, {"format": {"type": "object"}}):
            refused = chat(alone, **wish)
            assert refused.status_code == 501
            assert "not supported for MLX models" in refused.json()["error"]
        assert "does not support tools" in chat(alone, tools=[TOOL]).json()["error"]
        assert "not supported for MLX models" in chat(alone, CALLER, tools=[TOOL]).json()["error"]
        assert chat(alone).json()["eval_count"] == 24


def test_everything_else_of_the_model_is_relayed(before: OllamaServer, upstream: OllamaServer) -> None:
    asked = {
        "/api/embed": {"model": TINY, "input": "a text"},
        "/api/show": {"model": TINY},
        "/api/copy": {"source": "nobody", "destination": "somebody"},
        "/v1/responses": {"model": TINY, "input": "hi"},
    }
    for path, body in asked.items():
        mine, theirs = (server.http.post(path, content=json.dumps(body)) for server in (before, upstream))
        assert (path, mine.status_code, mine.text) == (path, theirs.status_code, theirs.text)
