"""`on` and `off` change one line of the config file."""

from __future__ import annotations

import codecs
import errno
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pilotfish.daemon.config import editing
from pilotfish.daemon.config.editing import set_enabled
from pilotfish.daemon.config.files import load
from pilotfish.hooks.errors import ConfigError, InvalidModelName

pytestmark = pytest.mark.usefixtures("home")  # what is edited is the user's file

WRITTEN = """\
# my settings
[drafters]   # who is asked
order = [ 'suffix' ]

[speculation]
max_width = 8      # enough for me
enabled = true     # the switch

[models."smollm2:135m"]
drafters = ["suffix"]
"""


def test_one_value_changes_and_everything_else_stays(config):
    config.write_text(WRITTEN)
    edit = set_enabled(False)
    assert config.read_text() == WRITTEN.replace("enabled = true  ", "enabled = false  ")
    assert (edit.path, edit.key, edit.changed, edit.created) == (config, "speculation.enabled", True, False)


def test_off_and_on_again_is_the_same_file(config):
    config.write_text(WRITTEN)
    set_enabled(False)
    set_enabled(True)
    assert config.read_text() == WRITTEN


def test_what_is_so_already_is_not_written(config):
    config.write_text(WRITTEN)
    before = config.stat().st_mtime_ns, config.stat().st_ino
    assert not set_enabled(True).changed
    assert (config.stat().st_mtime_ns, config.stat().st_ino) == before


def test_without_a_file_the_users_is_made(home):
    edit = set_enabled(False)
    assert edit.created
    assert edit.path == home / "config" / "pilotfish" / "pilotfish.toml"
    assert load().speculation.enabled is False


def test_the_named_file_is_made_where_it_is_named(home, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CONFIG", str(home / "mine" / "p.toml"))
    assert set_enabled(False).path == home / "mine" / "p.toml"
    assert load().speculation.enabled is False


@pytest.mark.parametrize("name", ["smollm2:135m", "SmolLM2:135M", "library/smollm2:135m"])
def test_a_models_own_table_is_found_under_any_of_its_names(config, name):
    config.write_text(WRITTEN)
    assert set_enabled(False, name).key == 'models."smollm2:135m".enabled'
    assert config.read_text() == WRITTEN + "enabled = false\n"


def test_a_model_without_a_table_gets_one_under_its_short_name(config):
    config.write_text(WRITTEN)
    set_enabled(False, "registry.ollama.ai/library/qwen3:8b")
    assert config.read_text().startswith(WRITTEN)
    assert load().for_model("qwen3:8b").speculation.enabled is False
    assert load().for_model("smollm2:135m").speculation.enabled is True


def test_models_whose_own_setting_says_otherwise_are_named(config):
    config.write_text("[models.a]\nenabled = true\n[models.b]\nenabled = false\n[models.c]\nmax_width = 2\n")
    assert set_enabled(False).exceptions == ("a",)
    assert set_enabled(True).exceptions == ("b",)


def test_a_link_stays_a_link_and_a_mode_a_mode(home, config):
    real = home / "real.toml"
    real.write_text(WRITTEN)
    real.chmod(0o640)
    config.symlink_to(real)
    set_enabled(False)
    assert config.is_symlink()
    assert load().speculation.enabled is False
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_edits_at_the_same_time_are_all_made(config, monkeypatch):
    config.write_text(WRITTEN)
    really = editing._read

    def slowly(path):
        document = really(path)
        time.sleep(0.01)  # long enough for the others to read the same text, if they could
        return document

    monkeypatch.setattr(editing, "_read", slowly)
    models = [f"model{i}:1b" for i in range(8)]
    with ThreadPoolExecutor(len(models)) as pool:
        edits = list(pool.map(lambda model: set_enabled(False, model), models))
    assert all(edit.changed for edit in edits)
    assert not any(load().for_model(model).speculation.enabled for model in models)


def test_a_byte_order_mark_is_read_over_and_an_edit_leaves_a_valid_file(config):
    config.write_bytes(codecs.BOM_UTF8 + WRITTEN.replace("true", "false").encode())
    assert load().speculation.enabled is False
    set_enabled(True)
    assert config.read_text() == WRITTEN
    assert load().speculation.enabled is True


def test_line_ends_stay(config):
    config.write_bytes(WRITTEN.replace("\n", "\r\n").encode())
    set_enabled(False)
    assert (
        config.read_bytes() == WRITTEN.replace("enabled = true  ", "enabled = false  ").replace("\n", "\r\n").encode()
    )


def test_an_edit_that_fails_leaves_the_file_and_nothing_beside_it(config, monkeypatch):
    config.write_text(WRITTEN)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        set_enabled(False)
    assert (config.read_text(), list(config.parent.iterdir())) == (WRITTEN, [config])


@pytest.mark.parametrize(
    ("text", "message"),
    [("[speculation\n", "not valid TOML.*mend it first"), ("speculation = 1\n", "speculation: expected a table")],
)
def test_a_broken_file_is_not_touched(config, text, message):
    config.write_text(text)
    with pytest.raises(ConfigError, match=message):
        set_enabled(False)
    assert config.read_text() == text


def test_a_name_that_is_none_is_refused(config):
    with pytest.raises(InvalidModelName):
        set_enabled(False, "../x")
    assert not config.exists()


def test_a_file_that_cannot_be_written_is_an_error_with_the_remedy(home, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("PILOTFISH_CONFIG", str(home / "file" / "p.toml"))
    with pytest.raises(ConfigError, match=r"cannot be written.*run as its owner"):
        set_enabled(False)
