"""What `overlay install` says of the engines and of every installed model."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from pilotfish.ollama_overlay import engines, outlook
from pilotfish.ollama_overlay.engines import FoundEngine
from pilotfish.ollama_overlay.ollama_libraries import Libllama
from tests.manifests.builders import safetensors_bytes, tiny_gguf, write_model
from tests.ollama_overlay import fake_ollama


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`pilotfish overlay install` for an Ollama with three models."""
    store = Store(tmp_path / "models")
    store.add_gguf("tiny", tiny_gguf(tmp_path / "tiny.gguf"))
    store.add_gguf("bert", tiny_gguf(tmp_path / "bert.gguf", architecture="bert"))
    write_model(store.root, "mlx", [(media.TENSOR, safetensors_bytes("a"), "a")], {"model_format": "safetensors"})
    ollama = fake_ollama.install(tmp_path / "original")
    config = tmp_path / "pilotfish.toml"
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PILOTFISH_CONFIG", str(config))
    monkeypatch.setenv("OLLAMA_MODELS", str(store.root))

    def install(*words, text='[engine]\nchoice = "llama"\n'):
        config.write_text(text)
        return CliRunner().invoke(
            cli, ["overlay", "install", "--ollama", str(ollama), "--prefix", str(tmp_path / "overlay"), *words]
        )

    return install


def line_of(shown, name):
    (line,) = re.findall(rf"^  {name} +(.*)$", shown.output, re.MULTILINE)
    return line


@pytest.fixture
def found(monkeypatch):
    """Have `install` find these engines."""

    def found(**usable):
        engines = tuple(FoundEngine(name, well, f"{name}'s story") for name, well in usable.items())
        monkeypatch.setattr(outlook, "find_engines", lambda *looked: engines)

    return found


def test_every_model_is_told_its_engine_or_why_it_stays_with_stock(install, found):
    found(llama=True, ik=False)
    shown = install()
    assert shown.exit_code == 0
    assert line_of(shown, "llama") == "llama's story"
    assert line_of(shown, "ik") == "no: ik's story"
    assert line_of(shown, "tiny:latest") == "llama"
    assert line_of(shown, "bert:latest") == "stock, because an embedding model: it does not generate text"
    assert line_of(shown, "mlx:latest").startswith("stock, because an MLX model")
    assert "missing for" not in shown.output


def test_what_is_missing_is_named_with_the_models_that_lack_it(install, found):
    found(llama=False, ik=True)
    shown = install()
    assert line_of(shown, "tiny:latest") == "stock, because llama cannot be used"
    assert "missing for tiny:latest\n  llama's story" in shown.output


def test_the_config_is_heeded(install, found):
    found(llama=True, ik=True)
    assert line_of(install(text='[engine]\nchoice = "ik"\n'), "tiny:latest") == "ik"
    off = install(text="[speculation]\nenabled = false\n")
    assert "switched off" in line_of(off, "tiny:latest")


def test_a_config_with_a_mistake_does_not_stop_the_installation(install, found):
    found(llama=True, ik=True)
    broken = install(text="[engine]\nchoice = 3\n")
    assert broken.exit_code == 0
    assert "engine.choice: expected one of" in broken.output


def test_as_json_it_is_one_object(install, found):
    found(llama=True, ik=False)
    said = json.loads(install("--json").stdout)
    assert said["changed"] is True
    assert said["record"]["original"]["binary"].endswith("ollama")
    assert {engine["name"]: engine["usable"] for engine in said["engines"]} == {"llama": True, "ik": False}
    models = {model["name"]: model for model in said["models"]}
    assert models["tiny:latest"]["engines"] == ["llama"]
    assert models["bert:latest"]["reason"]


def test_a_store_that_cannot_be_used_does_not_stop_the_installation(install, found, monkeypatch):
    found(llama=True, ik=True)
    monkeypatch.setenv("OLLAMA_MODELS", "~/models")
    shown = install()
    assert shown.exit_code == 0
    assert "OLLAMA_MODELS: ~/models is not absolute" in shown.output


@pytest.fixture
def looked_at(tmp_path, monkeypatch):
    """The engines in an environment with only `packages`, by name."""

    def look(*packages, libllama=None):
        def version(name):
            if name not in packages:
                raise engines.PackageNotFoundError(name)
            return "1.2.3"

        monkeypatch.setattr(engines, "version", version)
        if libllama:
            monkeypatch.setattr(engines, "choose", lambda *about: libllama)
        return {engine.name: engine for engine in engines.find_engines(outlook.Config(), tmp_path, tmp_path)}

    return look


def test_packages_that_are_not_there_come_with_the_command_that_compiles_nothing(looked_at, monkeypatch):
    monkeypatch.setattr(engines.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(engines.sys, "platform", "linux")
    found = looked_at()
    assert not any(engine.usable for engine in found.values())
    assert "LLAMA_BUILD=OFF pip install --no-cache-dir 'pilotfish[llama]'" in found["llama"].detail
    assert "pip install 'pilotfish[ik]'" in found["ik"].detail
    monkeypatch.setattr(engines.platform, "machine", lambda: "arm64")
    assert found["ik"].detail != looked_at()["ik"].detail == "ik-llama-cpp-python is for Linux on x86-64"


def test_whose_libllama_it_is_is_said(looked_at):
    ollamas = looked_at("llama-cpp-python", libllama=Libllama(True, True, "the libllama in /lib/ollama"))
    assert ollamas["llama"] == FoundEngine("llama", True, "llama-cpp-python 1.2.3: the libllama in /lib/ollama")
    none = looked_at("llama-cpp-python", libllama=Libllama(False, False, "it does not fit"))
    assert not none["llama"].usable


@pytest.mark.model
def test_the_engines_of_the_test_environment_are_found(tmp_path):
    found = engines.find_engines(outlook.Config(), tmp_path, tmp_path)
    assert {engine.name for engine in found if engine.usable} == {"llama", "ik"}, found
