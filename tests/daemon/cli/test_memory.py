"""`pilotfish memory show` and `clear` as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ConfigError, UsageError, WorldError
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import TargetPin, TokenizerPin, WeightPin
from pilotfish.manifests.store import Store
from tests.manifests.builders import tiny_gguf

SONG = list(range(100, 140))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, folder in (("PILOTFISH_STATE", "state"), ("XDG_CONFIG_HOME", "config"), ("OLLAMA_MODELS", "models")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("PILOTFISH_CONFIG", raising=False)
    monkeypatch.setattr(config_file, "SYSTEM_FILE", tmp_path / "etc" / "pilotfish.toml")
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "120"}).invoke(cli, ["memory", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def shown() -> list[dict]:
    return json.loads(CliRunner().invoke(cli, ["memory", "show", "--json"], catch_exceptions=False).stdout)


def pin_of(name: str, digest: str) -> TargetPin:
    return TargetPin(name, (WeightPin(digest, Path("/x"), 0),), TokenizerPin("t", "fake", 1000))


def runner(mode: str = "disk", **table: object) -> Drafter:
    config = parse({"drafters": {"suffix": {"memory": mode, "min_probability": 0.0, **table}}})
    drafter = Registry.load(config).drafter("suffix")
    assert drafter is not None
    return drafter


def ask(drafter: Drafter, pin: TargetPin) -> None:
    session = drafter.open(pin, [1, 2])
    session.commit(SONG)
    session.close()
    assert drafter.flush(20)


def remembers(drafter: Drafter, pin: TargetPin) -> bool:
    return drafter.open(pin, SONG[:3]).propose(4).tokens == tuple(SONG[3:7])


@pytest.fixture
def tiny(home: Path) -> TargetPin:
    """The pin of a model that is in the store under two names."""
    path = home / "tiny.gguf"
    tiny_gguf(path)
    store = Store(home / "models")
    for name in ("tiny:1m", "twin:latest"):
        store.add_gguf(name, path)
    return pin_of("tiny.gguf", str(store.manifest("tiny:1m").weights[0].digest))


A, B = (pin_of(name, f"sha256:{digit * 64}") for name, digit in (("a:1b", "a"), ("b:1b", "b")))


class TestShow:
    def test_lists_models_by_the_names_that_the_store_has_for_them(self, tiny: TargetPin) -> None:
        drafter = runner()
        for pin in (tiny, B):
            ask(drafter, pin)
        ask(drafter, B)
        text = run("show")
        assert "tiny:1m, twin:latest 1 40" in text
        assert "b:1b 2 80" in text
        assert "just now" in text

    def test_the_json_has_every_figure(self) -> None:
        ask(runner(), A)
        (found,) = shown()
        assert (found["models"], found["requests"], found["tokens"]) == (["a:1b"], 1, 40)
        assert found["bytes"] > 160
        assert found["oldest"] == found["newest"]
        assert Path(found["path"]).is_dir()

    def test_nothing_on_disk_is_said(self) -> None:
        ask(runner("session"), A)
        assert "Nothing is remembered on disk" in run("show")
        assert shown() == []

    def test_the_configured_folder_is_looked_into(self, home: Path) -> None:
        ask(runner(folder=str(home / "mine")), A)
        assert shown() == []
        (home / "config" / "pilotfish").mkdir(parents=True)
        config = home / "config" / "pilotfish" / "pilotfish.toml"
        config.write_text(f'[drafters.suffix]\nfolder = "{home / "mine"}"\n')
        assert [found["models"] for found in shown()] == [["a:1b"]]

    def test_a_mistake_in_the_drafters_table_is_reported(self, home: Path) -> None:
        (home / "config" / "pilotfish").mkdir(parents=True)
        (home / "config" / "pilotfish" / "pilotfish.toml").write_text('[drafters.suffix]\nmemory = "yes"\n')
        with pytest.raises(ConfigError, match=r"drafters\.suffix\.memory: expected one of"):
            run("show")


class TestClear:
    def test_one_model_goes_is_named_and_is_forgotten_by_who_holds_it(self) -> None:
        drafter = runner()
        for pin in (A, B):
            ask(drafter, pin)
        assert "removed the memory of a:1b: 1 requests, 40 tokens" in run("clear", "a:1b")
        assert [found["models"] for found in shown()] == [["b:1b"]]
        assert not remembers(drafter, A)
        assert remembers(drafter, B)

    @pytest.mark.parametrize("name", ["tiny:1m", "TWIN", "twin:latest", "library/tiny:1m", "tiny.gguf"])
    def test_any_name_of_the_model_will_do(self, tiny: TargetPin, name: str) -> None:
        ask(runner(), tiny)
        ask(runner(), B)
        assert "removed the memory of tiny:1m, twin:latest" in run("clear", name)
        assert [found["models"] for found in shown()] == [["b:1b"]]

    def test_the_key_will_do(self) -> None:
        ask(runner(), A)
        run("clear", shown()[0]["key"][:8])
        assert shown() == []

    def test_everything_goes_without_a_name(self) -> None:
        disk, session = runner(), runner("session")
        for pin in (A, B):
            ask(disk, pin)
        ask(session, A)
        text = run("clear")
        assert "a:1b" in text
        assert "b:1b" in text
        assert shown() == []
        assert not any(remembers(drafter, A) for drafter in (disk, session))

    def test_a_running_model_without_files_forgets_although_nothing_was_on_disk(self) -> None:
        session = runner("session")
        ask(session, A)
        assert "running models forget" in run("clear")
        assert not remembers(session, A)

    @pytest.mark.parametrize("name", ["nobody:1b", "abc", "../etc", ""])
    def test_a_name_that_is_not_there_is_an_error_and_removes_nothing(self, name: str) -> None:
        ask(runner(), A)
        with pytest.raises(UsageError, match="no memory of"):
            run("clear", name)
        assert len(shown()) == 1

    def test_what_cannot_be_removed_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ask(runner(), A)

        def refuse(path: Path, target: Path) -> Path:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(WorldError, match="Permission denied; the memory is not cleared"):
            run("clear", "a:1b")
        assert len(shown()) == 1


def test_the_default_remembers_until_the_model_is_unloaded_and_writes_no_text(home: Path) -> None:
    drafter = Registry.load(Config()).drafter("suffix")
    assert drafter is not None
    ask(drafter, A)
    assert {path.name for path in (home / "state").glob("*")} <= {"suffix"}, "which counts what came true"
    assert drafter.open(A, SONG[:8]).propose(4).tokens == tuple(SONG[8:12])
