"""Whose libllama is loaded: the config may name a folder."""

from __future__ import annotations

import os

import pytest

from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.registry.libllama_folder import BEFORE, LIBRARY_FOLDER
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ConfigError


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.setenv(LIBRARY_FOLDER, "/another")  # so that it is put back afterwards
    monkeypatch.setenv(BEFORE, "")
    monkeypatch.delenv(BEFORE)


def test_a_folder_is_told_to_whoever_loads_it(tmp_path):
    Registry.built_in(parse({"engine": {"libllama": "own/lib"}}, tmp_path / "pilotfish.toml"))
    assert os.environ[LIBRARY_FOLDER] == str(tmp_path / "own" / "lib")


@pytest.mark.parametrize("name", ["bundled", "ollama"])
def test_a_name_leaves_it_to_the_package_and_the_overlay(name):
    Registry.built_in(parse({"engine": {"libllama": name}}))
    assert os.environ[LIBRARY_FOLDER] == "/another"


@pytest.mark.parametrize("before", ["/another", None])
def test_a_folder_that_the_config_names_no_more_is_taken_back(before, monkeypatch):
    if before is None:
        monkeypatch.delenv(LIBRARY_FOLDER)
    for folder in ("/one", "/two"):
        Registry.built_in(parse({"engine": {"libllama": folder}}))
        assert os.environ[LIBRARY_FOLDER] == folder
    Registry.built_in(parse({}))
    assert os.environ.get(LIBRARY_FOLDER) == before


def test_what_is_neither_is_a_mistake():
    with pytest.raises(ConfigError, match="one of 'bundled', 'ollama', or the path of a folder"):
        parse({"engine": {"libllama": "olama"}})
