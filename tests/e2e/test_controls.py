"""An ordinary Ollama and an overlaid one as controls of a validation: compared by bytes and by counts."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.lab.receipts.receipt_folder import read_receipt
from tests.e2e.ollama_server import CONTEXT, MODEL
from tests.fakes.state import SHARED

pytestmark = pytest.mark.ollama

PROMPTS = {"workloads": [{"name": "count", "prompt": "Say the words one two three, then one two three again."}]}


def test_both_answer_the_same_bytes_the_runner_tells_of_itself_and_no_ids_are_claimed(
    stock, overlaid, models, tmp_path, monkeypatch
):
    monkeypatch.setenv("PILOTFISH_STATE", str(SHARED))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS))
    asked = ["--prompts-file", tmp_path / "prompts.json", "--tokens", 12, "--draft-lengths", 4, "--repeats", 1]
    where = ["--models", models, "--context", CONTEXT, "--threads", 1, "--engine", "llama"]
    controls = ["--control", stock.url, "--control", overlaid.url]
    words = ["validate", MODEL, "--execute", *asked, *where, *controls, "--output", tmp_path / "r"]
    result = CliRunner().invoke(cli, [*map(str, words)])
    assert result.exit_code == 0, result.output
    receipt = read_receipt(tmp_path / "r")
    ordinary, ours = receipt.controls
    assert (ordinary.served_by, ordinary.drafted, ours.served_by) == ("stock", None, "pilotfish")
    assert ordinary.version == ours.version != ""
    assert max(ours.widths) > 1
    assert ours.drafted is not None
    for number in (0, 1):
        cold, control = (trial for trial in receipt.trials if trial.control == number)
        reference = receipt.trial(control.compared_with)
        assert (cold.case, control.verdict) == ("cold", "equal")
        assert control.tokens in (reference.tokens, reference.tokens - reference.terminated)
        assert control.output_ids is None
        assert control.text
    summary = (tmp_path / "r" / "summary.txt").read_text()
    assert summary.count("it shows no ids") == 2
    assert f"in the lane {ours.lane}" in summary
