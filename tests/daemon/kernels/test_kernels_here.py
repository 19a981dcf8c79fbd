"""Which kernels a process and its children load: those of this processor and libllama, unless the config says no."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config, Engine, ModelSettings
from pilotfish.daemon.kernels import kernels_here
from pilotfish.daemon.kernels.kernels_here import (
    FOLDER,
    InstalledLibllama,
    folder_to_build_in,
    kernels_lack,
    kernels_path,
    obstacle,
    take_kernels,
)
from pilotfish.hooks.kernels import KERNELS


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder, on a machine that can have kernels, with version 1.2.3 of llama-cpp-python."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    monkeypatch.delenv(KERNELS, raising=False)
    monkeypatch.setattr(kernels_here.sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(kernels_here, "obstacle", lambda: "")
    monkeypatch.setattr(kernels_here, "installed_libllama", lambda: InstalledLibllama("1.2.3", tmp_path))
    return tmp_path


def built(cache: Path, version: str = "1.2.3") -> Path:
    path = kernels_path(cache / FOLDER, version)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


def test_what_was_built_is_named_until_the_config_takes_it_back(cache):
    take_kernels(Config())
    assert KERNELS not in os.environ
    path = built(cache)
    take_kernels(Config())
    assert os.environ[KERNELS] == str(path)
    take_kernels(Config(engine=Engine(kernels="off")))
    assert KERNELS not in os.environ


def test_those_in_the_python_environment_are_there_for_every_user(cache, monkeypatch):
    monkeypatch.delenv("PILOTFISH_CACHE")
    monkeypatch.setattr(kernels_here, "cache_dir", lambda: cache / "home")
    assert folder_to_build_in() == cache / "home" / FOLDER  # nothing can be written there: it does not exist
    environment = cache / "environment"
    environment.mkdir()
    folder = folder_to_build_in()
    assert folder == environment / "share" / "pilotfish" / FOLDER
    folder.mkdir(parents=True)
    path = kernels_path(folder, "1.2.3")
    path.touch()
    take_kernels(Config())
    assert os.environ[KERNELS] == str(path)


def test_the_environment_can_leave_them_out(cache, monkeypatch):
    monkeypatch.setenv(KERNELS, "off")
    assert not kernels_lack(Config())
    built(cache)
    take_kernels(Config())
    assert os.environ[KERNELS] == "off"


def test_kernels_of_another_version_or_processor_do_not_count(cache, monkeypatch):
    built(cache, "1.2.2")
    assert kernels_lack(Config())
    built(cache)
    assert not kernels_lack(Config())
    assert kernels_lack(Config(engine=Engine(kernels="off"))) is False
    monkeypatch.setattr(kernels_here, "_features", lambda: ["avx2", "f16c", "fma"])
    assert kernels_lack(Config())


def test_with_far_ends_they_are_left_out(cache):
    built(cache)
    afar = Engine(rpc=("10.0.0.2:50052",))
    take_kernels(Config(engine=afar))
    assert KERNELS not in os.environ
    take_kernels(Config(models={"m": ModelSettings(rpc=afar.rpc)}))
    assert KERNELS not in os.environ


def test_a_machine_without_them_says_why(monkeypatch):
    monkeypatch.setattr(kernels_here.sys, "platform", "darwin")
    assert obstacle() == "batch-invariant kernels are for Linux on x86-64"
    monkeypatch.setattr(kernels_here.sys, "platform", "linux")
    monkeypatch.setattr(kernels_here.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(kernels_here, "_features", lambda: ["avx2", "sse"])
    assert obstacle() == "this processor lacks f16c, fma, which the kernels need"
