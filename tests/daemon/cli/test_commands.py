"""The command line as a person meets it."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import COMMANDS, cli, main
from tests.manifests.builders import tiny_gguf


@pytest.fixture
def pilotfish(tmp_path, monkeypatch):
    """Run a command in this process, with state, cache and config of its own."""
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    return lambda *args: CliRunner().invoke(cli, args)


def console(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the installed console script."""
    script = shutil.which("pilotfish", path=str(sys.prefix + "/bin"))
    assert script
    return subprocess.run([script, *args], capture_output=True, text=True, timeout=240, env=env, check=False)


def test_every_command_has_a_line_of_help(pilotfish):
    shown = pilotfish("--help")
    assert shown.exit_code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", shown.output, re.MULTILINE), name


def test_an_unknown_command_names_itself(pilotfish):
    assert "No such command 'swim'" in pilotfish("swim").output


def test_an_empty_store_lists_nothing_and_says_how_to_get_a_model(pilotfish, tmp_path):
    (tmp_path / "models" / "manifests").mkdir(parents=True)
    shown = pilotfish("models")
    assert shown.exit_code == 0
    assert "ollama pull" in shown.output


def test_models_as_json_is_one_object(pilotfish, tmp_path):
    (tmp_path / "models" / "manifests").mkdir(parents=True)
    assert json.loads(pilotfish("models", "--json").stdout) == {"models": [], "skipped": []}


def test_stocks_ids_cannot_be_certified_with_another_engine(pilotfish, tmp_path):
    weights = tiny_gguf(tmp_path / "m.gguf")
    refused = pilotfish("certify", str(weights), "--engine", "ik", "--parity", "stock")
    assert refused.exit_code == 2
    assert "other kernels" in refused.output


def test_an_error_raised_on_purpose_is_one_line_and_exit_code_1(tmp_path):
    done = console("parity", "no-such-model", "--models", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "no-such-model" in done.stderr
    assert "Traceback" not in done.stderr


# Every command that looks into the model store.
WITH_STORE = (
    ["models"],
    ["status"],
    ["memory", "show"],
    ["memory", "clear", "m"],
    ["run", "m", "hi"],
    ["certify", "m"],
    ["parity", "m"],
    ["pair", "m", "n"],
    ["daemon"],
    ["serve"],
)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says on stderr that ends with 1; one sentence."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    said = capsys.readouterr().err
    assert ended.value.code == 1, said
    assert "Traceback" not in said
    assert said.startswith("Error: ")
    assert len(said.splitlines()) == 1
    return said


@pytest.fixture
def placed(tmp_path, monkeypatch):
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"PILOTFISH_{name}", str(tmp_path / name))
    monkeypatch.setenv("PILOTFISH_SOCKET", str(tmp_path / "s"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # nothing is piped in
    return monkeypatch


@pytest.mark.parametrize("words", WITH_STORE, ids=" ".join)
@pytest.mark.parametrize("path", ["~/x", "models", "./models"])
def test_a_store_that_only_ollama_can_find_is_named_as_it_is_written(capsys, placed, words, path):
    placed.setenv("OLLAMA_MODELS", path)
    assert f"OLLAMA_MODELS: {path} is not absolute" in refused(capsys, *words)


@pytest.mark.parametrize("words", WITH_STORE, ids=" ".join)
def test_a_store_that_cannot_be_read_is_named(capsys, placed, tmp_path, words):
    placed.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").touch()  # what root cannot read either
    assert f"{tmp_path / 'models' / 'manifests'} cannot be read: Not a directory" in refused(capsys, *words)


@pytest.mark.parametrize("words", [*WITH_STORE, ["certificates", "list"]], ids=" ".join)
def test_a_user_without_a_home_folder_is_told_so(capsys, placed, words):
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "OLLAMA_MODELS", "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        placed.delenv(name, raising=False)
    placed.setattr(os.path, "expanduser", lambda path: path)  # as it is left for a user that no list of users has
    assert "no home folder" in refused(capsys, *words)


def test_what_the_system_says_of_a_file_is_one_sentence_too(capsys, placed, tmp_path):
    (tmp_path / "STATE").touch()
    assert str(tmp_path / "STATE") in refused(capsys, "memory", "clear")


def test_even_where_no_command_expected_it(capsys, placed):
    def refuse(**named):
        raise PermissionError(errno.EACCES, "Permission denied", "/closed/file")

    placed.setattr(cli, "main", refuse)
    assert "/closed/file: Permission denied" in refused(capsys, "models")


@pytest.mark.model
def test_the_demo_prints_one_json_object_with_equal_ids(tmp_path):
    done = console("demo", "--json", "--tokens", "8")
    report = json.loads(done.stdout)
    assert (done.returncode, report["equal"]) == (0, True)
    assert len(report["prompts"]) == 16
    for prompt in report["prompts"]:
        assert set(prompt) == {"name", "kind", "mode", "tokens", "plain_tps", "speculative_tps", "acceptance", "equal"}
        assert prompt["mode"] in ("greedy", "seeded")
        assert 1 <= prompt["tokens"] <= 8


@pytest.mark.model
def test_run_answers_a_prompt_and_sums_it_up():
    done = console("run", "smollm2:135m", "Name three fruits.", "--num-predict", "12", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert re.search(r"12 tokens, [\d.]+ tok/s, .*parity", done.stderr)


@pytest.mark.model
def test_speculation_off_gives_the_same_text():
    ask = ("run", "smollm2:135m", "List the numbers from one to ten, twice.", "--num-predict", "40", "--seed", "7")
    assert console(*ask).stdout == console(*ask, "--no-speculate").stdout


def test_serving_gguf_models_needs_an_upstream(pilotfish):
    shown = pilotfish("serve", "--serve-gguf")
    assert shown.exit_code == 2
    assert "add --upstream URL" in shown.output
