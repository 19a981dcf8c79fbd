"""The config file: what it may say, and what a person is told when it says something else."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
import tomli

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.files import find, load, load_or_last_good
from pilotfish.daemon.config.reader import parse, to_table
from pilotfish.daemon.config.types import Config, Daemon, Drafters, Engine, ModelSettings, Promotion, Speculation
from pilotfish.hooks.errors import ConfigError
from pilotfish.hooks.types import Parity

ANNOTATED = Path(__file__).parents[3] / "etc" / "pilotfish.toml"

EVERYTHING = """
[speculation]
enabled = false
parity = "stock"
max_loss = 0
max_width = 8
deadline_ms = 100
require_promotion = true
[promotion]
min_gain = 0.3
max_first_token_loss = 0
[drafters]
order = ["mine", "suffix"]
[drafters.mine]
depth = 3
[verifiers.llama]
log = "stderr"
[models."smollm2:135m"]
enabled = true
drafters = []
[models.qwen3]
parity = "none"
max_width = 4
[plugins]
folders = ["drafters", "/opt/drafters"]
[engine]
choice = "ik"
libllama = "ollama"
[daemon]
socket = "run/p.sock"
[front]
host = "0.0.0.0:9000"
"""


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.delenv("PILOTFISH_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(config_file, "SYSTEM_FILE", tmp_path / "etc" / "pilotfish.toml")


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "pilotfish.toml"
        path.write_text(text)
        return path

    return write


class TestWhereItLies:
    def test_without_a_file_the_defaults_hold(self):
        assert load() == load_or_last_good() == Config()

    def test_the_environment_names_the_file(self, monkeypatch, write):
        path = write("[speculation]\nenabled = false\n")
        monkeypatch.setenv("PILOTFISH_CONFIG", str(path))
        assert find() == path
        assert load().speculation.enabled is False

    def test_the_users_file_comes_before_the_systems(self, tmp_path):
        for place in ("etc", "home/pilotfish"):
            (tmp_path / place).mkdir(parents=True)
            (tmp_path / place / "pilotfish.toml").touch()
            assert find() == tmp_path / place / "pilotfish.toml"

    def test_a_missing_named_file_says_so(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(tmp_path / "none.toml")


class TestWhatItSays:
    def test_the_annotated_file_says_exactly_the_defaults(self):
        assert tomli.loads(ANNOTATED.read_text()) == {
            **{key: table for key, table in to_table(Config()).items() if table},
            "drafters": {"order": ["suffix"], "suffix": {}},
        }

    def test_everything_it_can_say_arrives(self, write, tmp_path):
        config = load(write(EVERYTHING))
        assert config.speculation == Speculation(False, "stock", 0.0, 8, 100, require_promotion=True)
        assert config.promotion == Promotion(0.3, 0.0)
        assert config.drafters == Drafters(("mine", "suffix"), {"mine": {"depth": 3}})
        assert config.verifiers.tables == {"llama": {"log": "stderr"}}
        assert config.models == {
            "smollm2:135m": ModelSettings(enabled=True, drafters=()),
            "qwen3": ModelSettings(parity=Parity.NONE, max_width=4),
        }
        assert config.engine == Engine("ik", "ollama")
        assert config.daemon == Daemon(tmp_path / "run" / "p.sock")
        assert config.front.host == "0.0.0.0:9000"

    def test_nothing_is_lost_on_the_way_through_a_table(self, write):
        config = load(write(EVERYTHING))
        assert parse(to_table(config), config.path) == config

    def test_plugin_folders_are_relative_to_the_file(self, write, tmp_path):
        folders = load(write(EVERYTHING)).plugins.folders
        assert folders == (tmp_path / "drafters", Path("/opt/drafters"))


class TestOneModel:
    def test_its_own_settings_win_and_the_others_stay(self, write):
        config = load(write(EVERYTHING))
        mine = config.for_model("smollm2:135m")
        assert (mine.speculation.enabled, mine.speculation.parity, mine.drafters.order) == (True, "stock", ())
        assert mine.drafters.tables == config.drafters.tables

    @pytest.mark.parametrize("name", ["qwen3", "Qwen3:latest", "registry.ollama.ai/library/qwen3", "library/qwen3"])
    def test_a_model_has_many_names(self, write, name):
        assert load(write(EVERYTHING)).for_model(name).speculation.max_width == 4

    @pytest.mark.parametrize("name", ["qwen3:8b", "other/qwen3", "not a name", ""])
    def test_another_model_has_the_general_settings(self, write, name):
        config = load(write(EVERYTHING))
        assert config.for_model(name).speculation == config.speculation

    def test_models_that_share_their_weights_get_the_strictest_of_each_setting(self):
        config = parse(
            {
                "models": {
                    "a": {"parity": "stock", "drafters": ["x"]},
                    "b": {"parity": "none", "max_width": 4},
                    "c": {"enabled": False},
                }
            }
        )
        both = config.for_models(["a", "b"])
        assert (both.speculation.enabled, both.speculation.parity, both.speculation.max_width) == (True, "stock", 4)
        assert both.drafters.order == ("x",)
        assert config.for_models(["a", "b", "c"]).speculation.enabled is False
        assert config.for_models([]).speculation == config.speculation


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[speculation]\nenabled = 1\n", "speculation.enabled: expected true or false, got 1"),
            ("[speculation]\nmax_width = 0\n", "speculation.max_width: expected 1 to 64, got 0"),
            ("[speculation]\nmax_width = true\n", "speculation.max_width: expected a whole number, got True"),
            ("[speculation]\nmax_loss = nan\n", "speculation.max_loss: expected 0 to 1, got nan"),
            ("[speculation]\nmax_loss = '1%'\n", "speculation.max_loss: expected a number, got '1%'"),
            ("[speculation]\nparity = 'all'\n", "parity: expected one of 'stock', 'lane', 'none', got 'all'"),
            ("speculation = 5\n", r"speculation: expected a table \[speculation\], got 5"),
            ("[drafters]\norder = [1]\n", r"drafters.order: expected a list of strings, got \[1\]"),
            ("[drafters]\nsuffix = 3\n", r"drafters.suffix: expected a table \[drafters.suffix\]"),
            ('[models."a:b"]\nenabled = "no"\n', r'models."a:b".enabled: expected true or false'),
            ('[models."a:b"]\nmax_width = 65\n', r'models."a:b".max_width: expected 1 to 64'),
            ('[models]\n"a:b" = 1\n', r'models."a:b": expected a table \[models."a:b"\]'),
            ('[models."a b"]\n', r'models."a b": invalid model name'),
            ('[models.a]\n[models."A:latest"]\n', r'models."A:latest": the same model as .*models.a; keep one'),
            ("[engine]\nchoice = 'fast'\n", "engine.choice: expected one of 'auto', 'llama', 'ik', got 'fast'"),
            ("[engine]\nprompts = 'slow'\n", "engine.prompts: expected one of 'fast', 'lane', got 'slow'"),
            ("[engine]\ncache_ram_share = 2\n", "engine.cache_ram_share: expected 0 to 1, got 2"),
            ("[engine]\ncache_disk_mib = -1\n", "engine.cache_disk_mib: expected 0 to 1073741824, got -1"),
            ("[engine]\nlibllama = 'mine'\n", "engine.libllama: expected one of 'bundled', 'ollama'"),
            ("[daemon]\nsocket = 1\n", "daemon.socket: expected a string"),
            ("speculation = [\n", "not valid TOML"),
        ],
    )
    def test_a_wrong_value_is_named_by_its_path(self, write, text, message):
        path = write(text)
        with pytest.raises(ConfigError, match=message) as raised:
            load(path)
        assert str(raised.value).startswith(f"{path}: ")

    def test_one_that_may_not_be_looked_at_is_not_taken_for_none(self, tmp_path, monkeypatch):
        users = config_file.candidates()[0]
        really = Path.stat

        def stat(path, **named):
            if path == users:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return really(path, **named)

        monkeypatch.setattr(Path, "stat", stat)
        assert find() == users

    def test_bytes_that_are_no_text_are_refused(self, tmp_path):
        (tmp_path / "pilotfish.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match="not valid TOML"):
            load(tmp_path / "pilotfish.toml")

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    def test_utf_16_is_called_by_its_name(self, tmp_path, encoding):
        path = tmp_path / "pilotfish.toml"
        path.write_bytes("[speculation]\nenabled = false\n".encode(encoding))
        with pytest.raises(ConfigError, match=f"{path}: not valid TOML: .*UTF-16.*save it as UTF-8"):
            load(path)

    @pytest.mark.parametrize("text", ["a = " + "1" * 5000, "a = " + "[" * 100_000, 'a = "\\ud83d"'])
    def test_what_only_the_parser_minds_is_refused_too(self, write, text):
        with pytest.raises(ConfigError, match="not valid TOML"):
            load(write(text))

    @pytest.mark.parametrize("text", ["[plugins]\nfolders = ['{}']", "[daemon]\nsocket = '{}'"])
    def test_a_home_folder_that_is_not_there_is_named(self, write, text):
        with pytest.raises(ConfigError, match="~nosuchuser/x: there is no such home folder"):
            load(write(text.format("~nosuchuser/x")))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[speculation]\nenable = false\n", "speculation.enable: unknown key, ignored; did you mean 'enabled'?"),
            ("[speculations]\n", "speculations: unknown key, ignored; did you mean 'speculation'?"),
            ("[models.a]\ndrafter = []\n", "models.a.drafter: unknown key, ignored; did you mean 'drafters'?"),
            ("[front]\nxyzzy = 1\n", "front.xyzzy: unknown key, ignored; known here: host"),
        ],
    )
    def test_an_unknown_key_warns_with_the_nearest_known_one(self, write, caplog, text, message):
        with caplog.at_level(logging.WARNING, logger="pilotfish.config"):
            load(write(text))
        assert message in caplog.text


class TestLastGood:
    GOOD = "[speculation]\nmax_width = 5\n"

    @pytest.mark.parametrize("broken", ["", "  \n", "[speculation]\nmax_wid", "[speculation]\nmax_width = 99\n"])
    def test_a_broken_file_leaves_the_last_good_one_in_force(self, write, caplog, broken):
        good = load_or_last_good(write(self.GOOD))
        assert load_or_last_good(write(broken)) == good
        assert good.speculation.max_width == 5
        assert "the last good config stays in force" in caplog.text

    def test_a_deleted_one_too(self, write):
        path = write(self.GOOD)
        good = load_or_last_good(path)
        path.unlink()
        assert load_or_last_good(path) == good

    def test_another_files_is_not_taken(self, write, tmp_path):
        load_or_last_good(write(self.GOOD))
        other = tmp_path / "other.toml"
        other.write_text("[")
        with pytest.raises(ConfigError, match=r"other.toml: not valid TOML"):
            load_or_last_good(other)

    def test_an_empty_file_that_was_never_good_means_the_defaults(self, write):
        assert load_or_last_good(write("")).speculation == Config().speculation

    @pytest.mark.parametrize(
        "damage",
        [
            b'{"path": 1',
            b"\xff\xfe\x80",
            b"[" * 100_000,
            b"[]",
            b"5",
            b'{"path": "PATH", "config": 5}',
            b'{"path": "PATH"}',
        ],
    )
    def test_damage_to_what_was_kept_is_no_reason_to_fail(self, write, tmp_path, damage):
        path = write(self.GOOD)
        kept = tmp_path / "state" / config_file.LAST_GOOD
        load_or_last_good(path)
        kept.write_bytes(damage.replace(b"PATH", bytes(path)))
        assert config_file.last_good(path) is None
        assert load_or_last_good(path).speculation.max_width == 5
        assert config_file.last_good(path).speculation.max_width == 5, "it was written anew"

    def test_a_full_disk_costs_the_memory_of_it_and_nothing_else(self, write, tmp_path, monkeypatch):
        def full(*arguments):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        assert load_or_last_good(write(self.GOOD)).speculation.max_width == 5
        assert list((tmp_path / "state").iterdir()) == []

    def test_a_user_without_a_home_folder_has_the_systems_config(self, monkeypatch):
        for name in ("PILOTFISH_CONFIG", "PILOTFISH_STATE", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is left where there is none
        assert config_file.candidates() == (config_file.SYSTEM_FILE,)
        assert load_or_last_good() == Config()


def test_stock_parity_keeps_to_the_engine_of_stock_for_the_models_it_is_asked_for() -> None:
    config = parse({"engine": {"choice": "ik"}, "models": {"qwen3": {"parity": "stock"}}})
    assert (config.for_model("llama3").engines, config.for_model("llama3").why_not_chosen) == (("ik",), "")
    assert config.for_model("qwen3").engines == ("llama",)
    assert "stock" in config.for_model("qwen3").why_not_chosen
    assert config.for_models(["llama3", "qwen3"]).engines == ("llama",)


def test_without_a_choice_every_engine_may_compute_unless_stocks_ids_are_asked_for() -> None:
    assert Config().engines == ("llama", "ik")
    chosen = parse({"engine": {"choice": "ik"}})
    assert [config.engines_for("safetensors") for config in (Config(), chosen)] == [("mlx",), ("mlx",)]
    assert chosen.engines_for("gguf") == ("ik",)
    stock = parse({"speculation": {"parity": "stock"}})
    assert (stock.engines, stock.why_not_chosen) == (("llama",), "")
