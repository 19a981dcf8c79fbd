"""What pilotfish imports is what Ollama's own `create` would store, to the byte, and a real Ollama reads it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_folder import read_folder
from pilotfish.manifests.tensor_import import import_folder
from tests.e2e.ollama_server import serving
from tests.manifests.builders import safetensors_of

pytestmark = pytest.mark.ollama

NAMES = ("theirs", "ours")
ROWS = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
PLAIN = {
    "model.embed_tokens.weight": ("BF16", ROWS),
    "model.layers.0.mlp.up_proj.weight": ("F16", ROWS.view(np.float16)),
    "model.norm.weight": ("F32", np.ones(64, np.float32)),
}
FOUR_BITS = {
    **PLAIN,
    "model.layers.0.mlp.up_proj.weight": ("U32", np.ones((64, 8), np.uint32)),
    "model.layers.0.mlp.up_proj.scales": ("F16", np.ones((64, 1), np.float16)),
    "model.layers.0.mlp.up_proj.biases": ("F16", np.ones((64, 1), np.float16)),
}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}
QUANTIZED = {**CONFIG, "quantization": {"group_size": 64, "bits": 4, "mode": "affine"}}


def folder_of(path: Path, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> Path:
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(safetensors_of(tensors))
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.mark.parametrize(
    ("tensors", "config", "drafts"), [(PLAIN, CONFIG, False), (FOUR_BITS, QUANTIZED, False), (PLAIN, CONFIG, True)]
)
def test_an_import_is_what_ollama_would_create(
    ollama_binary: Path, tmp_path: Path, tensors: Mapping[str, Any], config: Mapping[str, Any], drafts: bool
) -> None:
    model = folder_of(tmp_path / "model", tensors, config)
    draft = folder_of(tmp_path / "draft", PLAIN, {**CONFIG, "architectures": ["Small"]}) if drafts else None
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM {model}\n" + (f"DRAFT {draft}\n" if draft else ""))
    store = Store(tmp_path / "store")
    with serving(ollama_binary, tmp_path / "creating", store.root) as server:
        environment = {**os.environ, "OLLAMA_HOST": server.url, "OLLAMA_MODELS": str(store.root)}
        command = [str(ollama_binary), "create", "theirs", "--experimental", "-f", str(modelfile)]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        import_folder(
            store.root, ModelName.parse("ours"), read_folder(model), draft=read_folder(draft) if draft else None
        )
        shown = [httpx.post(f"{server.url}/api/show", json={"model": name, "verbose": True}).json() for name in NAMES]
    theirs, ours = (store.manifest(name) for name in NAMES)
    assert ours.layers == theirs.layers
    assert store.config(ours).draft == store.config(theirs).draft
    assert store.config(ours).file_type == store.config(theirs).file_type
    assert shown[0]["tensors"] == shown[1]["tensors"]
    assert shown[0]["model_info"] == shown[1]["model_info"]
