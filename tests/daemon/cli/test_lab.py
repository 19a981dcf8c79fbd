"""`pilotfish lab` in short form: a few architectures, a few ids. The long form writes docs/models.md."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.hooks.errors import UsageError


@pytest.fixture
def lab(tmp_path, monkeypatch):
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return lambda *words: CliRunner().invoke(cli, ["lab", *words])


def test_the_list_names_what_is_made_and_what_is_not(lab):
    shown = lab("list").stdout
    assert any(line.split()[:2] == ["gemma3", "gemma3"] for line in shown.splitlines())
    assert "none of mllama: " in shown


def test_an_unknown_architecture_is_answered_with_the_choices(lab):
    failed = lab("matrix", "--architecture", "gpt-9")
    assert isinstance(failed.exception, UsageError)
    assert "there are llama, " in str(failed.exception)


def test_without_libllama_every_row_says_why(lab, monkeypatch, tmp_path):
    from pilotfish.daemon.lab.matrix import matrix_course
    from pilotfish.hooks.errors import EngineError

    def broken(case):
        raise EngineError("libllama is not installed")

    monkeypatch.setattr(matrix_course, "_made", broken)
    done = lab("matrix", "--architecture", "llama", "--format", "Q4_0", "--doc", str(tmp_path / "models.md"))
    assert done.exit_code == 1
    assert "llama Q4_0 on llama: failed: it could not be made: libllama is not installed" in done.stdout
    assert "libllama is not installed" in (tmp_path / "models.md").read_text()


def test_the_page_can_be_written_of_what_is_known(lab, tmp_path):
    from pilotfish.daemon.lab.matrix.matrix_case import MatrixCase, MatrixRow, MatrixSize

    row = MatrixRow(MatrixCase("gemma3", "Q8_0", "llama"), MatrixSize(), widths=(1, 2), lane="a lane")
    (tmp_path / "rows.jsonl").write_text(json.dumps(row.to_json()) + "\n")
    done = lab("matrix", "--known", "--jsonl", str(tmp_path / "rows.jsonl"), "--doc", str(tmp_path / "models.md"))
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    assert "| Q8_0, llama | 1 to 2 |" in (tmp_path / "models.md").read_text()


def test_a_model_that_failed_is_tried_again(lab, tmp_path, monkeypatch):
    from pilotfish.daemon.lab.matrix import matrix_course
    from pilotfish.daemon.lab.matrix.matrix_case import MatrixCase, MatrixRow, MatrixSize
    from pilotfish.hooks.errors import EngineError

    def broken(case):
        raise EngineError("still broken")

    monkeypatch.setattr(matrix_course, "_made", broken)
    log = tmp_path / "rows.jsonl"
    row = MatrixRow(MatrixCase("gemma3", "Q8_0", "llama"), MatrixSize(), failed="broken")
    log.write_text(json.dumps(row.to_json()) + "\n")
    done = lab("matrix", "--architecture", "gemma3", "--format", "Q8_0", "--jsonl", str(log))
    assert "still broken" in done.stdout
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.model
def test_plain_and_speculative_ids_are_equal_and_the_log_is_gone_on_with(lab, tmp_path):
    log = tmp_path / "rows.jsonl"
    small = ("--format", "Q4_0", "--tokens", "12", "--context", "40", "--context", "200", "--jsonl", str(log))
    done = lab("matrix", "--architecture", "llama", "--architecture", "qwen35", *small, "--json")
    assert done.exit_code == 0, done.output
    rows = {row["case"]["architecture"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["llama"]["differences"] == 0
    assert len(rows["llama"]["widths"]) > 1
    assert len(rows["llama"]["compared"]) == 2 * 2 * 2  # contexts, modes, drafters
    assert sum(one["accepted"] for one in rows["llama"]["compared"]) > 0
    assert rows["llama"]["kept"][0]["kept"] > 0
    assert rows["qwen35"]["distinct"] > 1
    before = log.read_text()
    again = lab("matrix", "--architecture", "llama", "--architecture", "qwen35", *small)
    assert again.exit_code == 0
    assert again.stdout.count("answers different") == 2
    assert log.read_text() == before
