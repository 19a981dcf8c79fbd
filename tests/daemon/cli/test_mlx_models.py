"""The commands that work on a model, on an MLX model: what they do with it, and what those for GGUFs say instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pilotfish.daemon.cli import cli
from pilotfish.hooks.errors import UsageError
from pilotfish.manifests.store import Store
from tests.plugins.verifiers.tiny_mlx import write_tiny

pytestmark = pytest.mark.drafters

PROMPTS = {"system": "", "workloads": [{"name": "again", "kind": "copy", "prompt": "Say 31 31 31 again."}]}
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("models"))
    write_tiny(store, "tiny")
    return store


@pytest.fixture
def run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(command, ...)`: a command on the model `tiny`."""
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS))

    def run(command: str, *words: object) -> Result:
        given = [command, "tiny", *map(str, words)]
        return CliRunner().invoke(cli, given, env={"OLLAMA_MODELS": str(store.root)})

    return run


def test_parity_compares_its_answers(run: Run, tmp_path: Path) -> None:
    result = run("parity", "--workloads", tmp_path / "prompts.json", "--tokens", 4, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["equal"]
    assert [trial["tokens"] for trial in report["trials"]] == [4] * 8
    assert {trial["lane"] for trial in report["trials"]} == {"mlx: flash, K f16, V f16"}


def test_validate_leaves_a_receipt_of_it(run: Run, tmp_path: Path) -> None:
    words = ("--prompts-file", tmp_path / "prompts.json", "--tokens", 4, "--repeats", 1, "--draft-lengths", 2)
    result = run("validate", *words, "--execute", "--output", tmp_path / "receipt")
    assert result.exit_code == 0, result.output
    assert "engine mlx mlx " in result.output
    assert "and 17 more" in result.output, "of its digests"
    verified = CliRunner().invoke(cli, ["receipt", "verify", str(tmp_path / "receipt")])
    assert verified.exit_code == 0, verified.output


def test_certify_measures_it(run: Run) -> None:
    result = run("certify", "--budget", 1)
    assert result.exit_code == 0, result.output
    assert "tiny:latest: " in result.output
    assert "mlx: flash, K f16, V f16" in result.output


@pytest.mark.usefixtures("run")
def test_diagnose_compares_its_rows(store: Store, tmp_path: Path) -> None:
    forwards = [{"width": width, "setting": {"engine": "mlx"}} for width in (1, 4)]
    table = {
        "schema": "pilotfish-reproduction/1",
        "model": "tiny",
        "prefix": list(b"one two one"),
        "forwards": forwards,
    }
    (tmp_path / "reproduction.json").write_text(json.dumps(table))
    words = ["diagnose", "--prefix-file", str(tmp_path / "reproduction.json")]
    result = CliRunner().invoke(cli, words, env={"OLLAMA_MODELS": str(store.root)})
    assert result.exit_code == 0, result.output
    assert "nothing differs" in result.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("compare",), "certify, parity, validate and diagnose take MLX models"),
        (("bench",), "certify, parity, validate and diagnose take MLX models"),
        (("parity", "--full"), "--full and --ollama are for GGUF models"),
        (("parity", "--ollama"), "--full and --ollama are for GGUF models"),
        (("parity", "--engine", "llama"), "MLX models are computed by mlx alone"),
        (("validate", "--engine", "ik"), "MLX models are computed by mlx alone"),
    ],
)
def test_what_is_for_ggufs_says_so_and_what_to_do(run: Run, words: tuple[str, ...], why: str) -> None:
    refused = run(*words).exception
    assert isinstance(refused, UsageError)
    assert why in str(refused)
