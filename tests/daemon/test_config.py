"""The config file: what it may say, and what a person is told when it says something else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pilotfish.daemon.config import Config, find, load
from pilotfish.hooks.errors import ConfigError

ANNOTATED = Path(__file__).parents[2] / "etc" / "pilotfish.toml"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "pilotfish.toml"
        path.write_text(text)
        return path

    return write


def test_without_a_file_the_defaults_hold(monkeypatch, tmp_path):
    monkeypatch.delenv("PILOTFISH_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load() == Config()


def test_the_annotated_file_says_exactly_the_defaults():
    said = load(ANNOTATED)
    assert (said.speculation, said.drafters.order, said.plugins) == (
        Config().speculation,
        Config().drafters.order,
        Config().plugins,
    )


def test_the_environment_names_the_file(monkeypatch, write):
    path = write("[speculation]\nenabled = false\n")
    monkeypatch.setenv("PILOTFISH_CONFIG", str(path))
    assert find() == path
    assert load().speculation.enabled is False


def test_a_drafters_table_is_handed_over_as_it_is(write):
    path = write('[drafters]\norder = ["mine"]\n[drafters.mine]\ndepth = 3\n')
    config = load(path)
    assert config.drafters.order == ("mine",)
    assert config.drafters.tables["mine"] == {"depth": 3}


def test_plugin_folders_are_relative_to_the_file(write, tmp_path):
    assert load(write('[plugins]\nfolders = ["drafters"]\n')).plugins.folders == (tmp_path / "drafters",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[speculation]\nenabled = 1\n", "speculation.enabled: expected bool, got 1"),
        ("[speculation]\nmax_width = 0\n", "speculation.max_width: must be between 1 and 64, got 0"),
        ("[speculation]\nmax_width = true\n", "speculation.max_width: expected int, got True"),
        ("speculation = 5\n", "speculation: expected dict, got 5"),
        ("[drafters]\norder = [1]\n", r"drafters.order: expected a list of strings, got \[1\]"),
        ("[drafters]\nsuffix = 3\n", r"drafters.suffix: expected a table \[drafters.suffix\]"),
        ("speculation = [\n", "not valid TOML"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load(write(text))


def test_a_missing_named_file_says_so(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_an_unknown_key_warns_with_the_nearest_known_one(write, caplog):
    with caplog.at_level(logging.WARNING, logger="pilotfish.config"):
        load(write("[speculation]\nenable = false\n"))
    assert "did you mean 'enabled'" in caplog.text
