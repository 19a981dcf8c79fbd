"""What makes another launch of a launch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config, Drafters, Engine, Speculation
from pilotfish.daemon.runner.launch_arguments import parse
from pilotfish.ollama_overlay.circumstances import circumstances

WORDS = ["--model", "/m", "--port", "1", "-c", "4096"]


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    path = tmp_path / "llama-server"
    path.write_bytes(b"one build")
    return path


@pytest.fixture
def hash_of(stock):
    def made(*more, config=Config(), environment=None, packages=("llama_cpp",)):  # noqa: B008 - frozen
        return circumstances(parse([*WORDS, *more]), config, environment or {}, packages, stock)

    return made


def test_a_launch_on_another_port_is_the_same(hash_of):
    assert hash_of() == hash_of("--port", "2", "--host", "0.0.0.0", "--alias", "x")
    drawn = ({"HOME": home, "LLAMA_MEDIA_MARKER": marker} for home, marker in (("/a", "1"), ("/b", "2")))
    assert len({hash_of(environment=environment) for environment in drawn}) == 1


@pytest.mark.parametrize(
    "flags", [("-c", "8192"), ("-np", "2"), ("--cache-type-k", "q8_0"), ("-t", "3"), ("-fa", "off")]
)
def test_other_flags_make_another(hash_of, flags):
    assert hash_of() != hash_of(*flags)


@pytest.mark.parametrize(
    "config",
    [
        Config(Speculation(parity="stock")),
        Config(drafters=Drafters(("mine",))),
        Config(engine=Engine(choice="ik")),
        Config(engine=Engine(libllama="ollama")),
    ],
)
def test_another_config_makes_another(hash_of, config):
    assert hash_of() != hash_of(config=config)
    assert hash_of(config=config) == hash_of(config=replace(config, path=Path("/elsewhere")))


def test_what_the_engine_is_told_makes_another(hash_of):
    told = ({}, {"GGML_CPU_TILED_MM": "0"}, {"LLAMA_ARG_CACHE_RAM": "0"})
    assert len({hash_of(environment=environment) for environment in told}) == 3


def test_another_build_of_anything_makes_another(hash_of, stock, tmp_path, monkeypatch):
    before = hash_of(packages=("an_engine",))
    library = tmp_path / "an_engine" / "lib" / "libllama.so"
    library.parent.mkdir(parents=True)
    (tmp_path / "an_engine" / "__init__.py").touch()
    library.touch()
    monkeypatch.syspath_prepend(tmp_path)
    installed = hash_of(packages=("an_engine",))
    os.utime(library, (1, 1))
    updated = hash_of(packages=("an_engine",))
    os.utime(stock, (1, 1))
    assert len({before, installed, updated, hash_of(packages=("an_engine",))}) == 4


def test_a_promotion_makes_another_where_it_is_required_and_only_there(hash_of, tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path))
    wanted = Config(Speculation(require_promotion=True))
    before = hash_of(), hash_of(config=wanted)
    (tmp_path / "promotions").mkdir()
    (tmp_path / "promotions" / "one.json").write_text("{}")
    assert hash_of() == before[0]
    promoted = hash_of(config=wanted)
    (tmp_path / "promotions" / "one.json").write_text('{"passed": [[1, 2]]}')
    assert len({before[1], promoted, hash_of(config=wanted)}) == 3
