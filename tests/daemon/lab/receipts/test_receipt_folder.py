"""A receipt is read as it was written, and whatever happened to a file of it is found and named."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.lab.receipts.receipt_folder import damages_of, read_receipt, read_trial, write_receipt
from pilotfish.daemon.lab.receipts.receipt_types import TrialVerdict
from pilotfish.daemon.lab.receipts.redaction import redacted
from pilotfish.hooks.errors import UsageError
from tests.daemon.lab.receipts.receipts import a_receipt, a_trial


@pytest.fixture
def folder(tmp_path):
    write_receipt(tmp_path / "r", a_receipt(), {"summary.txt": "all is well\n"})
    return tmp_path / "r"


def test_what_was_written_is_read(folder):
    assert read_receipt(folder) == a_receipt()
    assert damages_of(folder) == []


@pytest.mark.parametrize("name", ["receipt.json", "trials/plain-quote-1.json", "summary.txt"])
def test_a_changed_byte_is_found_and_named(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    assert [damage.file for damage in damages_of(folder)] == [name]
    with pytest.raises(UsageError, match=f"{name}: changed"):
        read_receipt(folder)


def test_verifying_hashes_every_file_once(folder, monkeypatch):
    hashed, sha256 = [], hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data: hashed.append(data) or sha256(data))
    done = CliRunner().invoke(cli, ["receipt", "verify", str(folder)])
    assert done.exit_code == 0, done.output
    assert sorted(hashed) == sorted(p.read_bytes() for p in folder.rglob("*.*"))


def test_a_file_that_went_or_came_is_named(folder):
    (folder / "summary.txt").unlink()
    (folder / "trials" / "mine.json").write_text("{}")
    assert [(damage.file, damage.what[:10]) for damage in damages_of(folder)] == [
        ("summary.txt", "cannot be "),
        ("trials/mine.json", "not listed"),
    ]


def test_sums_may_not_lead_out_of_the_folder(folder):
    with (folder / "SHA256SUMS").open("a") as file:
        file.write("0" * 64 + "  ../elsewhere\n")
    with pytest.raises(UsageError, match="no sum"):
        damages_of(folder)


def test_a_folder_that_holds_something_is_left_alone(folder):
    with pytest.raises(UsageError, match="not empty"):
        write_receipt(folder, a_receipt())


def test_no_trial_can_be_written_elsewhere(tmp_path):
    with pytest.raises(UsageError, match="cannot be the name"):
        write_receipt(tmp_path / "r", a_receipt(trials=(a_trial("../x"),)))


def test_a_field_of_another_type_is_named(tmp_path):
    receipt = a_receipt()
    write_receipt(tmp_path / "r", replace(receipt, settings=replace(receipt.settings, repeats="two")))
    with pytest.raises(UsageError, match=r"settings\.repeats is 'two'"):
        read_receipt(tmp_path / "r")


def test_another_schema_is_refused(tmp_path):
    write_receipt(tmp_path / "r", a_receipt(schema="pilotfish-receipt/99"))
    with pytest.raises(UsageError, match="its schema is pilotfish-receipt/99"):
        read_receipt(tmp_path / "r")


def test_a_trial_is_found_by_its_name(folder):
    assert read_trial(f"{folder}#plain-quote-1")[1].kind == "plain"
    with pytest.raises(UsageError, match="there are plain-quote-1"):
        read_trial(f"{folder}#nothing")
    with pytest.raises(UsageError, match="not RECEIPT#TRIAL"):
        read_trial(str(folder))


def test_the_failing_prefix_ends_before_the_first_other_id():
    trial = a_trial("x", verdict=TrialVerdict.DIFFERENT, differs_at=1)
    assert trial.failing_prefix == (*range(3, 15), 7)
    assert a_trial("y").failing_prefix is None


def test_a_redacted_receipt_holds_no_id_no_text_and_no_path(tmp_path):
    receipt = a_receipt()
    failed = a_trial("failed", verdict=TrialVerdict.FAILED, about="/home/me/x.gguf is not there")
    here = replace(receipt.environment, variables={"GGML_BACKEND_PATH": "/home/me/lib"})
    write_receipt(tmp_path / "r", redacted(replace(receipt, environment=here, trials=(*receipt.trials, failed))))
    everything = "".join(path.read_text() for path in (tmp_path / "r").rglob("*.json"))
    assert "/home" not in everything
    assert "a b" not in everything
    assert "11434" not in everything
    trial = json.loads((tmp_path / "r" / "trials" / "suffix-2-quote-1.json").read_text())
    assert trial["output_ids"] is trial["prompt_ids"] is trial["rounds"][0]["committed"] is None
    assert (trial["rounds"][0]["accepted"], trial["tokens"], trial["table"]["n"]) == (1, 2, 3)
    assert read_receipt(tmp_path / "r").settings.redacted
