"""What can be tried here, and why the rest cannot."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.lab.approaches import approaches_here as module
from pilotfish.daemon.lab.approaches.approaches_here import Machinery, approaches_here
from pilotfish.manifests.audit import Audit


@pytest.fixture(autouse=True)
def everything_installed(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name)


def titles(machinery):
    return [approach.title for approach in approaches_here(machinery)[0]]


def test_with_nothing_but_an_engine_there_is_the_suffix_drafter():
    found, missing = approaches_here(Machinery(Config(), "ik"))
    assert [approach.title for approach in found] == ["suffix"]
    assert found[0].plain.fields == {"speculate": False}
    assert found[0].plain.drafters.order == ()
    assert "--small MODEL" in missing["a small model by llama"]
    assert "--llama-server" in missing["stock's own modes"]
    assert missing["the bundled assistant"] == "the model bundles none"


def test_a_small_model_is_tried_by_every_engine_that_is_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlx_lm" else name)
    found, missing = approaches_here(Machinery(Config(), "llama", small="tiny"))
    tables = {approach.title: approach.drafted.drafters.tables for approach in found}
    assert tables["a small model by llama"] == {"llama": {"model": "tiny"}}
    assert tables["a small model by tinygrad"] == {"tinygrad": {"model": "tiny"}}
    assert missing["a small model by mlx"] == "it is not installed: pip install 'pilotfish[mlx]'"


def test_the_configs_own_small_model_needs_no_naming():
    config = Config(drafters=Drafters(tables={"llama": {"model": "tiny", "min_confidence": 0.2}}))
    (_, mine), _ = approaches_here(Machinery(config, "llama"))
    assert mine.drafted.drafters.tables == {"llama": {"model": "tiny", "min_confidence": 0.2}}


def test_stocks_modes_are_compared_with_stock():
    server, modes = Path("/bin/llama-server"), ("none", "draft-simple", "ngram-simple", "draft-mtp")
    machinery = Machinery(Config(), "llama", small_path=Path("/m.gguf"), server=server, server_modes=modes)
    stock = [approach for approach in approaches_here(machinery)[0] if not approach.plain.engine]
    assert [approach.title for approach in stock] == ["stock ngram-simple", "stock with a small model"]
    assert {approach.plain.server for approach in stock} == {("/bin/llama-server",)}
    assert stock[1].drafted.server == ("/bin/llama-server", "--model-draft", "/m.gguf")


def test_a_drafter_gets_the_file_that_was_found_for_the_name():
    machinery = Machinery(Config(), "llama", small="tiny", small_path=Path("/blobs/sha256-aa"))
    (_, mine, *_), _ = approaches_here(machinery)
    assert mine.about == "tiny drafts"
    assert mine.drafted.drafters.tables == {"llama": {"model": "/blobs/sha256-aa"}}


BUNDLES = {"config": Config(), "engine": "llama", "audit": Audit(draft_tensors=3)}
ABLE = {"server": Path("/s"), "server_modes": ("draft-mtp",)}


def test_an_assistant_that_needs_activations_is_for_a_stock_server_that_hands_them_over():
    for server in ({}, {"server": Path("/s"), "server_modes": ("ngram-simple",)}):
        reason = approaches_here(Machinery(**BUNDLES, **server))[1]["the bundled assistant"]
        assert reason.startswith("its draft layers need the model's activations")
        assert "--llama-server PATH" in reason
    inside = approaches_here(Machinery(**BUNDLES, **ABLE))[0][-1]
    assert (inside.title, inside.drafted.server[1:]) == ("the bundled assistant", ("--spec-type", "draft-mtp"))
    layer = {"assistant": Path("/mtp"), "why_no_model": "its draft layers (gemma4_mtp) need the model's activations"}
    beside = approaches_here(Machinery(**BUNDLES, **ABLE, **layer))[0][-1]
    assert beside.drafted.server[1:] == ("--spec-type", "draft-mtp", "--model-draft", "/mtp")
    assert "gemma4_mtp" in approaches_here(Machinery(**BUNDLES, **layer))[1]["the bundled assistant"]


def test_an_assistant_that_is_a_complete_model_drafts_here_and_there(monkeypatch):
    machinery = Machinery(**BUNDLES, **ABLE, assistant=Path("/small"))
    mine, theirs = approaches_here(machinery)[0][-2:]
    assert (mine.title, theirs.title) == ("the bundled assistant by llama", "stock with the bundled assistant")
    assert mine.drafted.drafters.tables == {"llama": {"model": "/small"}}
    assert theirs.drafted.server == ("/s", "--model-draft", "/small")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found, missing = approaches_here(Machinery(**BUNDLES, assistant=Path("/small")))
    assert [approach.title for approach in found] == ["suffix"]
    assert "pip install 'pilotfish[llama]'" in missing["the bundled assistant by llama"]
    assert "--llama-server PATH" in missing["stock with the bundled assistant"]
