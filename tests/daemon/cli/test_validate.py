"""`pilotfish validate` and `pilotfish receipt` from the command line to the folder, on the packaged model."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli, validate
from pilotfish.daemon.lab.validation.trial_asking import TrialAsking
from pilotfish.manifests.store import Store
from tests.daemon.control.governed import save
from tests.fakes.state import SHARED

PROMPTS = {"workloads": [{"name": "count", "prompt": "Say the words one two three, then one two three again."}]}


def invoke(*words):
    return CliRunner().invoke(cli, list(map(str, words)))


@pytest.fixture
def asked(tmp_path, monkeypatch, smollm2_path):
    """`validate` with prompts of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PILOTFISH_STATE", str(SHARED))

    def validate(*words, prompts=PROMPTS):
        (tmp_path / "prompts.json").write_text(json.dumps(prompts))
        return invoke("validate", smollm2_path, "--prompts-file", tmp_path / "prompts.json", *words)

    return validate


@pytest.mark.model
def test_without_execute_it_tells_the_plan_and_runs_nothing(asked, tmp_path):
    result = asked("--oracle-cases", "--output", tmp_path / "r")
    assert result.exit_code == 0
    assert "16 answers (1 cold, 2 plain, 6 draft, 7 oracle) of at most 64 tokens" in result.output
    assert not (tmp_path / "r").exists()


def test_the_plan_has_the_models_own_drafters(home, config, tiny):
    Store(home / "models").add_gguf("tiny:1m", tiny)
    words = ("validate", "tiny:1m", "--engine", "llama")
    assert "drafters: suffix;" in invoke(*words).output
    save(config, '[models."tiny:1m"]\ndrafters = []\n')
    assert "drafters: none;" in invoke(*words).output


@pytest.mark.model
def test_a_run_needs_a_folder_of_its_own(asked, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine").write_text("")
    assert "not empty" in str(asked("--execute", "--output", tmp_path / "r").exception)
    assert "no folder" in str(asked("--execute", "--output", tmp_path / "r" / "mine").exception)
    assert "Name a new folder" in str(asked("--execute").exception)


@pytest.mark.model
def test_a_drafter_that_cannot_be_had_is_told_before_anything_is_loaded(asked):
    assert "drafter nobody cannot be had" in str(asked("--drafters", "suffix,nobody").exception)


@pytest.mark.model
def test_a_run_that_is_stopped_leaves_a_receipt_and_takes_no_promotion_back(asked, tmp_path, monkeypatch):
    answers, settled = [], []
    answer = TrialAsking.answer

    def interrupted(*asked):
        if len(answers) == 2:
            raise KeyboardInterrupt
        answers.append(answer(*asked))
        return answers[-1]

    monkeypatch.setattr(TrialAsking, "answer", interrupted)
    monkeypatch.setattr(validate, "settle_promotions", lambda *given: settled.append(given) or [])
    words = ("--execute", "--tokens", "4", "--threads", "1", "--context", "256", "--engine", "llama")
    stopped = asked(*words, "--output", tmp_path / "r")
    assert (stopped.exit_code, settled) == (130, [])
    assert "stopped after 2 of 9 answers" in stopped.output
    assert "as it was written, 2 trials, verdict not promoted" in invoke("receipt", "verify", tmp_path / "r").output


@pytest.mark.model
def test_a_run_leaves_a_receipt_that_can_be_checked_shown_and_compared(asked, tmp_path):
    words = ("--execute", "--tokens", "16", "--draft-lengths", "4", "--repeats", "1", "--oracle-cases")
    folder = tmp_path / "r"
    result = asked(*words, "--threads", "1", "--context", "256", "--engine", "llama", "--output", folder)
    assert result.exit_code == 0, result.output
    assert "differs" not in result.output
    assert "as it was written, 10 trials" in invoke("receipt", "verify", folder).output
    shown = json.loads(invoke("receipt", "show", "--json", folder).output)
    assert {trial["verdict"] for trial in shown["trials"]} <= {"reference", "equal", "not reached"}
    assert sum(trial["verdict"] == "equal" for trial in shown["trials"] if trial["kind"] == "oracle") >= 5
    one = json.loads(invoke("receipt", "show", f"{folder}#{shown['trials'][1]['name']}").output)
    assert len(one["output_ids"]) == one["tokens"] == 16
    assert invoke("receipt", "compare", folder, folder).exit_code == 0
    assert invoke("receipt", "redact", folder, tmp_path / "shown").exit_code == 0
    assert "ids were left out" in invoke("receipt", "compare", folder, tmp_path / "shown").output
    page = bytearray((folder / "report.html").read_bytes())
    page[100] ^= 1
    (folder / "report.html").write_bytes(page)
    broken = invoke("receipt", "verify", folder)
    assert (broken.exit_code, "report.html: changed" in broken.output) == (1, True)
