"""`pilotfish models`: a line for each model, however narrow the terminal, and all about one on request."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner
from gguf import GGMLQuantizationType
from rich.console import Console

from pilotfish.daemon.certify.certificate import CertificateStore, identity_of
from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.cli import cli
from pilotfish.daemon.cli import models as models_command
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, WeightPin
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from tests.engines import VERIFIERS
from tests.fakes.measured import certificate_of
from tests.manifests.builders import safetensors_bytes, tiny_gguf, write_model

LONG = "hf.co/some-very-long-organisation/A-Very-Long-Model-Name-Instruct-2512-GGUF:Q4_K_M"
TINY = {"tensor_type": GGMLQuantizationType.Q6_K}


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Run the command over a store of several kinds of models; with `width`, on a terminal of so many columns."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    store = Store(tmp_path / "models")
    store.add_gguf("tiny", tiny_gguf(tmp_path / "tiny.gguf"))
    store.add_gguf(LONG, tiny_gguf(tmp_path / "long.gguf", **TINY))
    store.add_gguf("bert", tiny_gguf(tmp_path / "bert.gguf", architecture="bert"))
    write_model(store.root, "mlx", [(media.TENSOR, safetensors_bytes("a"), "a")], {"model_format": "safetensors"})

    def models(*arguments, width=None):
        if width is not None:
            terminal = Console(width=width, force_terminal=True, color_system=None, highlight=False)
            monkeypatch.setattr(models_command, "out", terminal)
        return CliRunner().invoke(cli, ["models", "--models", str(store.root), *arguments])

    return models


def test_on_a_narrow_terminal_every_model_is_one_line_with_its_verdict(models):
    heading, *lines = models(width=80).stdout.splitlines()
    assert heading.split() == ["NAME", "SIZE", "QUANT", "SPECULATES"]
    assert all(len(line) <= 80 for line in lines)
    shown = {line.split()[0]: line for line in lines}
    assert len(lines) == len(shown) == 4
    verdicts = {"bert:latest": "no: embedding model", "mlx:latest": "no: no engine", "tiny:latest": "yes"}
    assert all(shown[name].rstrip().endswith(f"  {verdict}") for name, verdict in verdicts.items())
    (cut,) = (line for name, line in shown.items() if name.startswith("hf.co/some-very-long"))
    assert "… " in cut
    assert cut.rstrip().endswith("  checked at load")


def test_in_a_pipe_no_name_is_cut(models):
    shown = models()
    assert any(line.startswith(f"{LONG} ") for line in shown.stdout.splitlines())
    assert "pilotfish models NAME" in shown.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (LONG, "Q6_K weights: the widths that keep tokens equal are checked at load"),
        ("mlx", "an MLX model (safetensors): Ollama's own MLX engine serves it"),
    ],
)
def test_all_about_one_model_includes_the_reasons(models, name, why):
    shown = models(name).stdout
    assert why in shown
    assert "tiny:latest" not in shown


def test_what_it_means_for_the_reader_comes_before_what_the_model_is(models):
    lines = models(LONG, width=80).stdout.splitlines()
    titles = [line.split()[0] for line in lines if line[:1].strip()]
    assert titles[:3] == ["name", "speculates", "engine"]
    assert titles.index("engine") < titles.index("size")
    assert all(len(line) <= 80 for line in lines)


def test_all_about_one_model_includes_why_stock_serves_it(models, tmp_path):
    store = Store(tmp_path / "models")
    blob = store.blob(store.manifest("tiny").weights[0])
    os.utime(blob, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered
    LeftToStock(tmp_path / "state", blob).put("a launch", Left("its sliding window forgets", 2.0))
    said = " ".join(models("tiny").stdout.split())
    assert "no: left to stock" in said
    assert "under Ollama, since 1970-01-01" in said
    assert "its sliding window forgets" in said


def test_one_model_as_json_has_the_shape_of_all(models):
    listing = json.loads(models("tiny", "--json").stdout)
    assert [model["name"] for model in listing["models"]] == ["tiny:latest"]
    assert listing["models"][0]["verdict"] == "yes"
    assert listing["skipped"] == []


def test_a_model_that_is_not_there_is_an_error(models):
    assert "'nope:latest' not found" in str(models("nope").exception)


def test_all_about_one_says_which_engine_would_compute_it_and_why(models, tmp_path, monkeypatch):
    assert "engine llama: not measured yet" in " ".join(models("tiny").stdout.split())
    config = tmp_path / "pilotfish.toml"
    monkeypatch.setenv("PILOTFISH_CONFIG", str(config))
    config.write_text('[engine]\nchoice = "ik"\n')
    assert "engine ik size" in " ".join(models("tiny").stdout.split())
    assert "engine" not in models("bert").stdout.replace("embedding", "")
    config.write_text("[engine]\nchoice = 1\n")
    assert models("tiny").exit_code == 0


def test_a_certified_model_names_the_engine_that_won(models, tmp_path):
    builds = {name: verifier().fingerprint(None) for name, verifier in VERIFIERS.items()}
    weights = json.loads(models("tiny", "--json").stdout)["models"][0]["weights"]
    pin = replace(fake_pin(), weights=tuple(WeightPin(digest, tmp_path, 1) for digest in weights))
    identity = identity_of(pin, builds, EngineOptions(threads=3))  # whatever the launch was
    lane = Lane("lane", (1, 2, 3), EngineSetting(engine="ik"))
    CertificateStore(tmp_path / "state").put(certificate_of(identity, lane, engine="ik_llama.cpp 1"))
    assert "ik (ik_llama.cpp 1), as measured here" in models("tiny").stdout


def test_an_mlx_model_shows_its_assistant_and_counts_its_tensors(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    names = ["draft.eh_proj.weight", *(f"layers.{i}" for i in range(10))]
    layers = [(media.TENSOR, safetensors_bytes(name), name) for name in names]
    write_model(tmp_path / "models", "mlx", layers, {"model_format": "safetensors"})
    shown = CliRunner().invoke(cli, ["models", "--models", str(tmp_path / "models"), "mlx"]).stdout
    assert "1 tensor; it needs the model's activations, by draft.eh_proj.weight" in shown
    assert "11 files; their digests: --json" in shown
