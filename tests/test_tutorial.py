"""What docs/drafters.md shows works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import COMMANDS, cli
from pilotfish.daemon.config.files import load
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.lab.conformance import CHECKS
from pilotfish.daemon.registry.registry import Registry
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters import llama, mlx, tinygrad

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "drafters.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


TUTORIAL = TEXT[TEXT.index("## Write one") :]
DRAFTER, CONFIG = blocks("python", TUTORIAL)[0], blocks("toml", TUTORIAL)[0]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PILOTFISH_STATE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "drafters").mkdir(mode=0o755)
    (tmp_path / "drafters" / "again.py").write_text(DRAFTER)
    (tmp_path / "pilotfish.toml").write_text(CONFIG)
    return tmp_path


def test_the_drafter_has_ten_lines() -> None:
    assert sum(bool(line.strip()) for line in DRAFTER.splitlines()) <= 10


def test_the_drafter_passes_with_the_command_beside_it(home: Path) -> None:
    command = next(line for line in blocks("sh", TUTORIAL)[0].splitlines() if "conformance" in line).split()
    assert command[0] == "pilotfish"
    done = CliRunner(env={"COLUMNS": "160"}).invoke(cli, [*command[1:], "--deterministic"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert blocks("text", TUTORIAL)[0].splitlines()[-1] in done.output


def test_the_config_loads_the_drafter_which_proposes_what_its_text_says(home: Path) -> None:
    config = load(home / "pilotfish.toml")
    registry = Registry.load(config)
    assert registry.problems == []
    assert config.drafters.order == ("again", "suffix")
    drafter = registry.drafter("again")
    assert drafter is not None
    assert drafter.open(fake_pin(), [3, 4, 5, 9, 4, 5]).propose(2).tokens == (9, 4)
    assert drafter.open(fake_pin(), [3, 4]).propose(2).tokens == ()


def test_every_check_is_in_the_table() -> None:
    missing = [check.name for check in CHECKS if f"| {check.name} | {check.demand} |" not in TUTORIAL]
    assert missing == []


def test_its_drafters_and_bridges_are_those_that_there_are() -> None:
    registry = Registry.load()
    named = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    bridges = {name for plugin in registry.plugins for name in plugin.bridges}
    assert named == {*registry.drafters, *bridges}


KEYS = {
    name: re.findall(r"\w+", keys)
    for name, keys in re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|$", TEXT, re.MULTILINE)
}


def test_the_keys_it_names_are_known(caplog: pytest.LogCaptureFixture) -> None:
    assert KEYS.keys() == {*Registry.load().drafters} - {"oracle"}  # which is for the lab
    for name, keys in KEYS.items():
        table = dict.fromkeys(keys, ())  # a value that no key takes: it is read, then refused
        Registry.load(parse({"drafters": {name: table}})).drafter(name)
    assert [record.getMessage() for record in caplog.records if "unknown key" in record.getMessage()] == []


@pytest.mark.parametrize("module", [llama, mlx, tinygrad], ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_key_of_a_model_drafter_is_left_out(module: ModuleType) -> None:
    assert sorted(KEYS[module.__name__.rpartition(".")[2]]) == sorted(module.KEYS)


def test_every_command_it_names_exists_with_its_options() -> None:
    used = re.findall(
        r"pilotfish ([a-z-]+)((?: [^`\n]*)?)", "\n".join((*blocks("sh"), *re.findall(r"`([^`\n]+)`", TEXT)))
    )
    assert {name for name, _ in used} >= {"conformance", "draft-host", "pair", "explain", "status"}
    for name, rest in used:
        assert name in COMMANDS
        shown = CliRunner().invoke(cli, [name, "--help"]).output
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in shown, f"pilotfish {name} {option}"


def test_every_linked_file_exists() -> None:
    linked = re.findall(r"\]\((?!https?://)([^)#]+)\)", TEXT)
    assert linked
    assert [path for path in linked if not (DOCUMENT.parent / path).exists()] == []
