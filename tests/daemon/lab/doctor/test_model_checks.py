"""What the doctor finds about one model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pilotfish.daemon.certify.certificate import CertificateStore, identity_of
from pilotfish.daemon.cli import cli
from pilotfish.daemon.lab.doctor.finding import Level
from pilotfish.daemon.lab.doctor.model_checks import model_findings
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, WeightPin
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from tests.daemon.lab.doctor.examined import ENGINES, surroundings
from tests.fakes.measured import certificate_of
from tests.manifests.builders import safetensors_bytes, tiny_gguf, write_model
from tests.plugins.verifiers.tiny_mlx import write_tiny

TEMPLATE = "tokenizer.chat_template"
BOS = {"tokenizer.ggml.bos_token_id": 0}
NOT_CERTIFIED = (Level.NOTE, "not certified yet; an idle runner will do it")


@pytest.fixture
def found(tmp_path):
    """The findings about a model of the store, as (level, what); `changes` are of the surroundings."""

    def found(name="m", **changes):
        store = Store(tmp_path / "models")
        around = surroundings(store=store, state_dir=tmp_path / "state", **changes)
        return [(finding.level, finding.what) for finding in model_findings(around, store.manifest(name))]

    return found


def add(tmp_path, name="m", *, template="", **gguf):
    """A model in the store, with Ollama's `template` if one is given."""
    file = tiny_gguf(tmp_path / f"{name}.gguf", **gguf)
    layers = [(media.MODEL, file.read_bytes())] + ([(media.TEMPLATE, template.encode())] if template else [])
    write_model(tmp_path / "models", name, layers)


def certify(tmp_path, weights, engines=ENGINES, **figures):
    pin = replace(fake_pin(), weights=tuple(WeightPin(digest, tmp_path, 1) for digest in weights))
    lane = Lane("lane", figures.pop("widths", (1, 2, 3)), EngineSetting(engine="llama"))
    made = certificate_of(identity_of(pin, engines, EngineOptions()), lane, **figures)
    CertificateStore(tmp_path / "state").put(made)


def weights_of(tmp_path, name="m"):
    return [str(layer.digest) for layer in Store(tmp_path / "models").manifest(name).weights]


def test_of_a_sound_model_there_is_only_that_it_is_not_certified_yet(tmp_path, found):
    add(tmp_path)
    assert found() == [NOT_CERTIFIED]


@pytest.mark.parametrize(
    ("values", "ollamas", "level", "what"),
    [
        ({TEMPLATE: "{{ bos_token }}hi"}, "", Level.WARNING, "begins prompts with <s>, and its tokenizer adds none"),
        ({TEMPLATE: "<s>hi"}, "", Level.WARNING, "begins prompts with <s>, and its tokenizer adds none"),
        ({}, "<s>{{ .Prompt }}", Level.WARNING, "begins prompts with <s>, and its tokenizer adds none"),
        ({"tokenizer.ggml.add_bos_token": True}, "<s>{{ .Prompt }}", Level.WARNING, "Ollama's template holds <s>"),
        ({"tokenizer.ggml.add_bos_token": True}, "", Level.NOTE, "its tokenizer begins every prompt with <s>"),
    ],
)
def test_prompts_that_would_begin_wrongly_are_named(tmp_path, found, values, ollamas, level, what):
    add(tmp_path, values={**BOS, **values}, template=ollamas)
    (first, _) = found()
    assert first[0] == level
    assert what in first[1]


def test_a_template_without_bos_and_a_tokenizer_that_adds_none_are_of_one_mind(tmp_path, found):
    add(tmp_path, values={**BOS, TEMPLATE: "hi", "tokenizer.ggml.add_bos_token": False})
    assert found() == [NOT_CERTIFIED]


def test_a_bos_that_marks_every_turn_is_no_beginning(tmp_path, found):
    turns = "{% for m in messages %}<s>{{ m.content }}{% endfor %}<s>assistant"
    add(tmp_path, values={**BOS, TEMPLATE: turns, "tokenizer.ggml.add_bos_token": False})
    assert found() == [NOT_CERTIFIED]


def test_an_assistant_that_nothing_announces_is_found(tmp_path, found):
    add(tmp_path, values={"llama.nextn_predict_layers": 0}, tensors=("token_embd.weight", "blk.1.nextn.eh_proj.weight"))
    assert (Level.WARNING, "it bundles an assistant (1 tensor) that no metadata field announces") in found()


def test_an_announced_assistant_is_a_note(tmp_path, found):
    add(tmp_path, values={"llama.nextn_predict_layers": 1}, tensors=("token_embd.weight", "blk.1.nextn.eh_proj.weight"))
    assert (Level.NOTE, "it bundles an assistant (1 tensor)") in found()


@pytest.mark.parametrize(
    ("architecture", "what"),
    [
        ("llama", "it bundles a complete small model to draft with"),
        ("gemma4_mtp", "it bundles an assistant (1 layer)"),
    ],
)
def test_a_draft_layer_is_told_by_whether_it_can_draft_by_itself(tmp_path, found, architecture, what):
    tensors = ("token_embd.weight", "blk.0.attn_norm.weight")
    draft = tiny_gguf(tmp_path / "draft.gguf", architecture=architecture, tensors=tensors).read_bytes()
    target = tiny_gguf(tmp_path / "m.gguf").read_bytes()
    write_model(tmp_path / "models", "m", [(media.MODEL, target), (media.DRAFT, draft)])
    assert (Level.NOTE, what) in found()


def test_the_assistant_in_an_mlx_model_is_found_whatever_its_config_counts(tmp_path, found):
    tensors = [(media.TENSOR, safetensors_bytes(name), name) for name in ("model.norm", "draft.norm")]
    write_model(tmp_path / "models", "m", tensors, {"model_format": "safetensors", "mtp_layers": 0})
    assert (Level.WARNING, "it bundles an assistant (1 tensor) that no metadata field announces") in found()


@pytest.mark.drafters
def test_an_mlx_model_is_for_our_own_server_and_certified_with_its_own_engine(tmp_path, found):
    """Nothing of it names commands that are for GGUF models only."""
    pin = write_tiny(Store(tmp_path / "models"), "m")
    theirs = (Level.NOTE, "an MLX model: under Ollama alone no drafts of pilotfish's reach it")
    assert found() == [theirs, NOT_CERTIFIED]
    certify(tmp_path, [weight.digest for weight in pin.weights], {"mlx": "c" * 64}, prompt_ratio=1.0)
    assert found(tensor_engines={"mlx": "c" * 64}) == [theirs]
    assert found()[1] == (Level.WARNING, "it was certified with another build of mlx")


def test_a_model_larger_than_what_is_free_may_fail_to_load(tmp_path, found):
    add(tmp_path)
    (first, _) = found(free=10)
    assert first[0] == Level.WARNING
    assert first[1].endswith("10 bytes are free")


def test_a_broken_model_is_one_problem_and_others_are_still_looked_at(tmp_path, found):
    add(tmp_path)
    add(tmp_path, "other")
    blob = Store(tmp_path / "models").manifest("other").weights[0]
    (tmp_path / "models" / "blobs" / str(blob.digest).replace(":", "-")).unlink()
    ((level, _),) = found("other")
    assert level == Level.PROBLEM


def test_a_certificate_for_these_weights_and_engines_has_nothing_to_add(tmp_path, found):
    add(tmp_path)
    certify(tmp_path, weights_of(tmp_path), prompt_ratio=1.0)
    assert found() == []


def test_other_builds_make_a_certificate_void(tmp_path, found):
    add(tmp_path)
    certify(tmp_path, weights_of(tmp_path), {**ENGINES, "ik": "c" * 64})
    assert found() == [(Level.WARNING, "it was certified with another build of ik")]


def test_a_runner_under_ollama_computes_with_ollamas_own_library(tmp_path, found):
    add(tmp_path)
    certify(tmp_path, weights_of(tmp_path), {**ENGINES, "llama": "d" * 64}, prompt_ratio=1.0)
    assert found(ollamas_llama="d" * 64) == []
    what = "it was certified with another build of llama, neither the one here nor that of Ollama 0.33.2"
    assert found(ollamas_llama="e" * 64) == [(Level.WARNING, what)]


def test_a_tag_that_moved_is_noticed(tmp_path, found):
    add(tmp_path)
    certify(tmp_path, ["sha256:" + "1" * 64], model="m:latest")
    assert found() == [(Level.WARNING, "the tag moved: these are not the weights that were certified under this name")]


def test_exactness_that_costs_time_is_named_with_its_price(tmp_path, found):
    add(tmp_path)
    certify(tmp_path, weights_of(tmp_path), plain_ratio=1.2, prompt_ratio=1.6, expected_ratio=1.1)
    assert found() == [(Level.WARNING, "in its lane steps take 1.20x and prompts take 1.60x of stock's time")]


def test_a_lane_of_one_width_is_explained(tmp_path, found):
    add(tmp_path)
    certify(tmp_path, weights_of(tmp_path), widths=(1,), prompt_ratio=1.0)
    ((level, what),) = found()
    assert level == Level.NOTE
    assert what.startswith("widths 1")


def test_the_command_shows_findings_with_remedies_and_fails_only_on_problems(tmp_path, home):
    add(home, "m")
    runner = CliRunner()
    shown = runner.invoke(cli, ["doctor", "m"])
    said = " ".join(shown.stdout.split())
    assert "m:latest: not certified yet" in said
    assert "do: pilotfish certify m:latest" in said
    told = json.loads(runner.invoke(cli, ["doctor", "--json"]).stdout)
    assert {"level", "about", "what", "why", "remedy"} == set(told["findings"][0])

    (home / "models" / "blobs").rename(home / "models" / "gone")
    assert runner.invoke(cli, ["doctor"]).exit_code == 1
