"""How the systems are found and started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.types import ENGINES, Config, Drafters, ModelSettings, Speculation
from pilotfish.daemon.lab import bench_systems, llama_server
from pilotfish.daemon.lab.bench_systems import Bed, command, endpoint, pilotfish_systems, record, stock_systems
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.lab.fakes import fake_pin
from tests.daemon.lab.fake_llama_server import as_program


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The fake, as a program."""
    (tmp_path / "bin").mkdir()
    return as_program(tmp_path / "bin")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stock server unless a test puts one there."""
    monkeypatch.delenv(llama_server.ENVIRONMENT, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(llama_server, "BUILT", tmp_path / "none")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "m.gguf", "m", 2, 512, Config(), tmp_path, tmp_path / "state")


class TestFindingTheStockServer:
    def test_there_may_be_none(self):
        assert llama_server.find_llama_server() is None

    def test_the_first_of_option_environment_build_and_path(self, server, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(server.parent))
        assert llama_server.find_llama_server() == server
        for name, take in (("built", "BUILT"), ("env", "ENVIRONMENT"), ("named", "")):
            path = tmp_path / name
            path.write_bytes(server.read_bytes())
            path.chmod(0o755)
            if take == "BUILT":
                monkeypatch.setattr(llama_server, "BUILT", path)
            elif take:
                monkeypatch.setenv(llama_server.ENVIRONMENT, str(path))
            assert llama_server.find_llama_server(path if name == "named" else None) == path

    @pytest.mark.parametrize("make", ["missing", "not executable"])
    def test_one_that_was_named_and_cannot_run_is_an_error(self, tmp_path, make):
        path = tmp_path / "llama-server"
        if make != "missing":
            path.write_text("#!/bin/sh\n")
        with pytest.raises(UsageError, match="not a program that can be run"):
            llama_server.find_llama_server(path)

    def test_its_ngram_modes_have_the_names_that_it_gives_them(self, server):
        assert llama_server.ngram_modes(server) == ("ngram-good", "ngram-wrong", "ngram-broken")
        assert llama_server.version(server) == "version: 4711 (fake)"

    def test_a_build_without_speculation_has_none(self, tmp_path):
        path = tmp_path / "old"
        path.write_text("#!/bin/sh\necho usage\n")
        path.chmod(0o755)
        assert llama_server.ngram_modes(path) == ()

    def test_a_program_that_fails_is_named(self, tmp_path):
        path = tmp_path / "broken"
        path.write_text("#!/bin/sh\nexit 3\n")
        path.chmod(0o755)
        with pytest.raises(EngineError, match=r"broken --help: .*3"):
            llama_server.ngram_modes(path)


def test_stock_keeps_its_defaults_and_gets_the_same_threads_and_context(bed):
    plain, mode = stock_systems(Path("/x/llama-server"), ["ngram-mod"])
    words = command(plain, bed, 99)
    assert words[0] == "/x/llama-server"
    assert (
        " ".join(words[1:]) == f"--model {bed.model} --host 127.0.0.1 --port 99 -c 512 -np 1 -t 2 --no-webui --offline"
    )
    assert command(mode, bed, 99)[:3] == ["/x/llama-server", "--spec-type", "ngram-mod"]
    assert mode.reference == plain.name


def test_the_runner_has_a_config_a_state_and_a_socket_of_its_own(bed):
    plain, *_ = pilotfish_systems("llama")
    words = command(plain, bed, 99)
    assert words[0] == "env"
    settings = dict(word.split("=", 1) for word in words if word.startswith("PILOTFISH_") and "=" in word)
    assert set(settings) == {"PILOTFISH_CONFIG", "PILOTFISH_STATE", "PILOTFISH_SOCKET", "PILOTFISH_CERTIFY"}
    assert settings["PILOTFISH_STATE"] == str(bed.state)
    assert config_file.load(Path(settings["PILOTFISH_CONFIG"])).drafters.order == ("suffix",)


def written_config(system, bed) -> Config:
    words = command(system, bed, 1)
    (path,) = [word.partition("=")[2] for word in words if word.startswith("PILOTFISH_CONFIG=")]
    return config_file.load(Path(path))


def test_the_users_config_is_measured_as_it_is_but_for_switches_that_would_leave_nothing_to_measure(bed):
    mine = Config(Speculation(enabled=False, max_width=8), models={"m": ModelSettings(enabled=False)})
    _, speculative, *_ = pilotfish_systems("llama")
    config = written_config(speculative, replace(bed, config=mine))
    assert config.speculation == Speculation(enabled=True, max_width=8)
    assert config.models == {}


def test_each_engine_has_the_same_systems_and_its_own_plain_ids_are_their_measure(bed):
    for engine in ENGINES:
        systems = pilotfish_systems(engine)
        plain = f"pilotfish ({engine}) plain"
        assert [system.name for system in systems] == [plain, f"pilotfish ({engine})", f"pilotfish ({engine}) oracle"]
        assert [system.reference for system in systems] == ["", plain, plain]
        assert {written_config(system, bed).engine.choice for system in systems} == {engine}


def test_the_ceiling_drafts_from_the_recording_through_a_plugin_folder(bed):
    """What the runner does with it: load the config, load the plugins, open the drafter for a request."""
    _, _, ceiling = pilotfish_systems("llama")
    config = written_config(ceiling, bed)
    registry = Registry.load(config)
    assert registry.problems == []
    drafter = registry.drafter(config.drafters.order[0])
    assert drafter is not None
    record(ceiling, bed, [8, 9])
    assert drafter.open(fake_pin(), [1]).propose(4).tokens == (8, 9)


def test_other_drafters_of_the_user_do_not_get_into_the_ceiling(bed):
    _, _, ceiling = pilotfish_systems("llama")
    mine = replace(bed, config=Config(drafters=Drafters(("suffix", "mine"), {"mine": {"a": 1}})))
    assert written_config(ceiling, mine).drafters.order == ("replay",)


@pytest.mark.parametrize("text", ["http://here", "=http://here", "name=", "name=here:11434"])
def test_an_endpoint_is_a_name_and_a_url(text):
    with pytest.raises(UsageError, match="not NAME=URL"):
        endpoint(text)


async def test_an_endpoint_that_is_not_there_is_named(bed):
    with pytest.raises(EngineError, match="mine: nobody answers at http"):
        async with bench_systems.serving(endpoint("mine=http://127.0.0.1:9"), bed, None):
            pass
