"""Whose a model is, before an Ollama."""

from __future__ import annotations

import pytest

from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.computed_here import EnginesHere
from pilotfish.daemon.front.ownership import Ownership
from pilotfish.daemon.front.settings import Upstream
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from tests.manifests.builders import safetensors_bytes, write_model

NOWHERE = ServerAddress("127.0.0.1", 9)


def ownership(store, obstacle=lambda model: "", clock=lambda: 0.0, *, serve_gguf=True):
    return Ownership(Catalog(store), Upstream(NOWHERE, serve_gguf), obstacle, clock)


async def test_gguf_models_are_ours_if_the_user_says_so(store):
    model = await ownership(store).owned("tiny")
    assert model is not None
    assert model.short == "tiny:latest"
    assert await ownership(store, serve_gguf=False).owned("tiny") is None


async def test_a_model_that_the_config_switches_off_is_not(store, tmp_path, monkeypatch):
    config = tmp_path / "pilotfish.toml"
    monkeypatch.setenv("PILOTFISH_CONFIG", str(config))
    config.write_text("")
    owners = ownership(store)
    assert await owners.owned("tiny") is not None
    config.write_text("[models.tiny]\nenabled = false\n")
    assert await owners.owned("tiny") is None
    assert await owners.owned("caller") is not None


async def test_one_that_could_not_be_loaded_is_tried_again_later(store):
    now = [0.0]
    owners = ownership(store, clock=lambda: now[0])
    model = await owners.owned("tiny")
    await owners.failed(model)
    assert await owners.owned("tiny") is None
    now[0] = 601.0
    assert await owners.owned("tiny") is not None


async def test_an_mlx_model_is_the_upstreams_as_long_as_no_verifier_takes_it(store):
    write_model(store.root, "mlx", [(media.TENSOR, safetensors_bytes("a"), "a")], {"model_format": "safetensors"})
    model = await Catalog(store).find("mlx")
    assert "no engine here computes it" in EnginesHere(store)(model)
    assert await ownership(store, lambda model: "too tiny", serve_gguf=False).owned("mlx") is None
    taken = await ownership(store, serve_gguf=False).owned("mlx")
    assert taken is not None
    assert taken.weights == model.manifest.path


async def test_a_broken_tensor_is_named_until_it_is_mended(store):
    """Whether the file's size tells it or only its digest, after the model could not be loaded."""
    write_model(store.root, "mlx", [(media.TENSOR, safetensors_bytes("a"), "a")], {"model_format": "safetensors"})
    blob = store.blob(store.manifest("mlx").layers[0])
    whole, owners = blob.read_bytes(), ownership(store, EnginesHere(store))
    blob.write_bytes(whole[:-1])
    with pytest.raises(BrokenModel, match="mlx:latest: tensor layer a: "):
        await owners.owned("mlx")
    blob.write_bytes(whole[:-1] + b"\1")
    with pytest.raises(BrokenModel, match="mlx:latest: tensor layer a: "):
        await owners.failed(await Catalog(store).find("mlx"))
    blob.write_bytes(whole)
    assert await owners.owned("mlx") is None  # as it has no config.json, no engine takes it
