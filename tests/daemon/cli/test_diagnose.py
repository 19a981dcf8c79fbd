"""`pilotfish diagnose` from its argument to what a person reads, on a fake engine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pilotfish.daemon.certify import certification
from pilotfish.daemon.certify.probe_driver import OutOfTime
from pilotfish.daemon.certify.reproductions import read_reproduction, write_reproduction
from pilotfish.daemon.cli import cli
from pilotfish.daemon.lab.diagnose import diagnosing, loaded
from pilotfish.daemon.lab.receipts.receipt_folder import write_receipt
from pilotfish.daemon.lab.receipts.receipt_types import TrialVerdict
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import Lane
from tests.daemon.lab.diagnose.traced_probe import STOCK, TracedProbe, reproduction
from tests.daemon.lab.receipts.receipts import a_receipt, a_round, a_trial
from tests.manifests.builders import tiny_gguf


def split_attention(width, cells):
    return int(width == 1 and cells > 256)


@pytest.fixture
def diagnose(tmp_path, monkeypatch):
    """Run the command; every setting is loaded as this fake probe."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(loaded, "RemoteProbe", lambda *asked: TracedProbe(split_attention))
    model = tiny_gguf(tmp_path / "tiny.gguf")

    def run(*words):
        return CliRunner().invoke(cli, ["diagnose", "--model", str(model), *map(str, words)])

    return run


@pytest.fixture
def prefix_file(tmp_path):
    def write(size):
        write_reproduction(tmp_path / "prefix.json", reproduction(size, lane=(1, 2, 3)))
        return tmp_path / "prefix.json"

    return write


def test_the_conclusion_comes_first_and_the_shortest_prefix_is_kept(diagnose, prefix_file, tmp_path):
    done = diagnose("--prefix-file", prefix_file(300), "--output", tmp_path / "least.json")
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    first = (
        "first difference: layer 0, attention (FLASH_ATTN_EXT) over 300 cells, widths 1 and 5 in flash, K f16, V f16"
    )
    assert lines[0] == first
    assert "widths with equal rows here: 1 | 2-17" in lines
    assert "widths of the lane: 1-3" in lines
    assert len(read_reproduction(tmp_path / "least.json").prefix) == 253
    assert "253 ids are enough" in lines[-1]


def test_where_nothing_differs_the_exit_status_is_0_and_nothing_is_written(diagnose, prefix_file, tmp_path):
    done = diagnose("--prefix-file", prefix_file(100), "--output", tmp_path / "least.json")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("nothing differs: widths 1-17 give the same rows")
    assert not (tmp_path / "least.json").exists()


def test_a_diagnosis_that_ran_out_of_time_says_so_and_does_not_pass(diagnose, prefix_file, monkeypatch):
    def out_of_time(*asked):
        raise OutOfTime

    monkeypatch.setattr(diagnosing, "faults_of", out_of_time)
    done = diagnose("--prefix-file", prefix_file(100))
    assert done.exit_code == 3, done.output
    assert done.stdout.startswith("incomplete: time ran out, and nothing differs")
    assert "--budget" in done.stdout


def test_the_layers_of_the_reproduction_are_loaded_on_the_gpu(diagnose, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(loaded, "RemoteProbe", lambda *asked: opened.append(asked) or TracedProbe(split_attention))
    write_reproduction(tmp_path / "prefix.json", reproduction(100, gpu_layers=7))
    assert diagnose("--prefix-file", tmp_path / "prefix.json").exit_code == 0
    assert {options.gpu_layers for _, _, _, options, _ in opened} == {7}


def test_json_has_everything(diagnose, prefix_file):
    found = json.loads(diagnose("--prefix-file", prefix_file(300), "--json").stdout)
    assert found["parting"]["title"] == "attention (FLASH_ATTN_EXT)"
    assert found["classes"] == [[1], list(range(2, 18))]
    assert [past["kind"] for past in found["pasts"]] == ["single tokens", "accepted blocks", "fresh prefill"]
    assert found["minimal"]["schema"] == "pilotfish-reproduction/1"


def test_a_trial_of_a_receipt_is_taken_up(diagnose, tmp_path):
    ids = tuple(range(3, 303))
    rounds = (a_round(300, (7, 8, 9, 10), 4, (7, 8, 9, 10, 11), width=5),)
    trial = a_trial("bad", verdict=TrialVerdict.DIFFERENT, rounds=rounds, differs_at=2, prompt_ids=ids, n_prompt=300)
    receipt = a_receipt()
    settings = replace(receipt.settings, lane=Lane("stock", (1, 5), STOCK))
    write_receipt(tmp_path / "receipt", replace(receipt, trials=(trial,), settings=settings))
    done = diagnose(f"{tmp_path / 'receipt'}#bad")
    assert done.exit_code == 1, done.output
    assert "attention (FLASH_ATTN_EXT) over 302 cells, widths 1 and 5" in done.stdout
    assert "has other weights here" in done.stdout


def test_what_output_wrote_is_what_certify_takes(diagnose, prefix_file, tmp_path, monkeypatch):
    def asked_of(pin, verifiers, options, *, regressions, **more):
        raise EngineError(f"asked to look after {[len(one.prefix) for one in regressions]} ids")

    monkeypatch.setattr(certification, "certify", asked_of)
    diagnose("--prefix-file", prefix_file(300), "--output", tmp_path / "least.json")
    words = ["certify", str(tmp_path / "tiny.gguf"), "--engine", "llama", "--probe", str(tmp_path / "least.json")]
    done = CliRunner().invoke(cli, words)
    assert str(done.exception) == "asked to look after [253] ids"


@pytest.mark.parametrize("words", [(), ("receipt#one", "--prefix-file", "x.json")])
def test_one_of_a_trial_and_a_file_has_to_be_named(diagnose, words):
    done = diagnose(*words)
    assert done.exit_code == 2
    assert "RECEIPT#TRIAL" in done.stderr
