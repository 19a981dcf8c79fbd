"""Runner or stock: one launch, one reason."""

from __future__ import annotations

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.hooks.environment import OFF
from pilotfish.hooks.errors import ConfigError
from pilotfish.ollama_overlay.decision import decide
from tests.fakes.scans import scans
from tests.ollama_overlay.launches import launch


def test_a_plain_launch_is_for_the_runner(deciding):
    decision = deciding("--no-jinja", "--chat-template", "chatml", "--flash-attn", "auto", "-b", "512", "-ub", "512")
    assert decision.runner
    assert decision.model == "tiny:1b"
    assert not decision.ollama_libraries


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--mmproj", "/p"), "--mmproj"),
        (("--lora", "/a"), "--lora"),
        (("--embedding",), "--embedding"),
        (("--spec-type", "draft-mtp", "--spec-draft-n-max", "4"), "--spec-type"),
        (("--brand-new-flag",), "--brand-new-flag"),
        (("-c", "many"), "-c"),
    ],
)
def test_what_the_runner_does_not_do_goes_to_stock(deciding, flags, reason):
    decision = deciding(*flags)
    assert not decision.runner
    assert decision.reason.startswith(reason)


def test_what_the_environment_asks_of_llama_server_goes_to_stock_too(deciding, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_TOP_K", "20")
    decision = deciding()
    assert not decision.runner
    assert decision.reason.startswith("LLAMA_ARG_TOP_K is set: --top-k: ")


@pytest.mark.parametrize(
    ("config", "runner"),
    [
        ("[speculation]\nenabled = false", False),
        ('[models."tiny:1b"]\nenabled = false', False),
        ('[models."TINY:1B"]\nenabled = false', False),
        ('[models."other"]\nenabled = false', True),
        ('[speculation]\nenabled = false\n[models."tiny:1b"]\nenabled = true', True),
    ],
    ids=["all off", "this one off", "in other letters", "another off", "all off but this one"],
)
def test_the_config_switches_models_off(deciding, config, runner):
    decision = deciding(config=config)
    assert decision.runner is runner
    assert runner or "switched off" in decision.reason


@pytest.mark.parametrize("where", ["[engine]", '[models."tiny:1b"]'])
def test_what_is_spread_over_machines_is_the_runners_also_while_it_does_not_speculate(deciding, where):
    """No stock server reaches far ends, and the model is too large for this machine."""
    decision = deciding(config=f'[speculation]\nenabled = false\n{where}\nrpc = ["10.0.0.2"]')
    assert decision.runner
    assert decision.reason.endswith("over 10.0.0.2:50052")
    assert not deciding(config='[speculation]\nenabled = false\n[models.other]\nrpc = ["10.0.0.2"]').runner


def test_of_models_that_share_a_weight_file_one_that_is_off_is_enough(deciding, store, tmp_path):
    store.add_gguf("other:1b", tmp_path / "weights.gguf")
    decision = deciding(config='[models."other:1b"]\nenabled = false')
    assert not decision.runner
    assert decision.model == "other:1b, tiny:1b"
    assert "other:1b" in decision.reason


def test_without_an_engine_there_is_no_runner(deciding):
    reason = deciding(packages=()).reason
    assert "pip install 'pilotfish[llama]'" in reason
    assert "pip install 'pilotfish[ik]'" in reason


@pytest.mark.parametrize("package", ["llama_cpp", "ik_llama_cpp"])
def test_any_engine_is_enough(deciding, package):
    assert deciding(packages=(package,)).runner


def test_the_engine_that_was_chosen_is_the_one_that_must_be_there(deciding):
    ik = '[engine]\nchoice = "ik"\n'
    decision = deciding(config=ik, packages=("ik_llama_cpp",))
    assert (decision.runner, decision.ollama_libraries) == (True, False)
    assert "engine ik" in decision.reason
    assert "pip install 'pilotfish[ik]'" in deciding(config=ik, packages=("llama_cpp",)).reason


@pytest.mark.parametrize("where", ["[speculation]", '[models."tiny:1b"]'])
def test_stock_parity_excludes_other_engines_and_says_so(deciding, where):
    config = f'[engine]\nchoice = "ik"\n{where}\nparity = "stock"\n'
    decision = deciding(config=config, packages=("llama_cpp",))
    assert decision.runner
    assert 'parity = "stock" keeps to llama' in decision.reason
    assert "pilotfish[llama]" in deciding(config=config, packages=("ik_llama_cpp",)).reason


def test_the_manifests_are_gone_through_once(deciding, store):
    with scans(store.manifests) as seen:
        assert deciding().runner
    assert len(seen) == 1


@pytest.mark.parametrize("word", [*OFF, "OFF", '"off"', "'False'"])
def test_the_environment_switches_it_off_in_every_spelling(deciding, monkeypatch, word):
    monkeypatch.setenv("PILOTFISH", word)
    decision = deciding()
    assert not decision.runner
    assert decision.reason.startswith("PILOTFISH=")
    monkeypatch.setenv("PILOTFISH", "on")
    assert deciding().runner


def test_a_bad_config_is_a_reason(blob, state):
    def load():
        raise ConfigError("pilotfish.toml: speculation.enabled: expected true or false")

    decision = decide(launch(blob), state, load, lambda package: True)
    assert not decision.runner
    assert "speculation.enabled" in decision.reason


def test_anything_that_raises_is_a_reason(blob, state):
    decision = decide(launch(blob), state, lambda: 1 / 0, lambda package: True)
    assert not decision.runner
    assert "ZeroDivisionError" in decision.reason


def test_a_missing_file_is_a_reason(tmp_path, deciding):
    decision = deciding(argv=launch(tmp_path / "nothing.gguf"))
    assert not decision.runner
    assert "nothing.gguf" in decision.reason


@pytest.mark.parametrize("state_of", [lambda file: file, lambda file: file / "state"], ids=["a file", "below a file"])
def test_a_state_folder_that_cannot_be_made_does_not_stop_speculation(blob, tmp_path, state_of):
    (tmp_path / "file").touch()
    assert decide(launch(blob), state_of(tmp_path / "file"), Config, lambda package: True).runner


def test_a_relative_path_goes_to_stock(deciding):
    """Ollama takes OLLAMA_MODELS=~/x as it stands, and hands such a path on."""
    decision = deciding(argv=launch("~/x/blobs/sha256-1"))
    assert not decision.runner
    assert "~/x/blobs/sha256-1 is a relative path" in decision.reason


@pytest.mark.parametrize("error", [SystemExit(0), BaseException("panic"), RecursionError()])
def test_whatever_is_raised_is_a_reason(blob, state, error):
    def load():
        raise error

    assert type(error).__name__ in decide(launch(blob), state, load, lambda package: True).reason


def test_a_file_outside_a_store_is_called_by_its_name(deciding, tmp_path):
    decision = deciding(argv=launch(tmp_path / "weights.gguf"))
    assert decision.runner
    assert decision.model == "weights.gguf"
    assert not deciding(argv=launch(tmp_path / "weights.gguf"), config="[speculation]\nenabled = false").runner


def test_a_broken_manifest_beside_it_does_not_matter(deciding, store):
    for name, data in (("empty", b""), ("half", b'{"layers": [')):
        path = store.manifests / "registry.ollama.ai" / "library" / name / "latest"
        path.parent.mkdir()
        path.write_bytes(data)
    assert deciding().model == "tiny:1b"
